"""Keeps one row for each request of a tenant in PostgreSQL, priced, and makes bills of them.

Two programs: `serve` takes rows in and answers about them, `ship` sends them from the access log of an Envoy pod.
A person is in a row only as the key and the prompt id that a request came with; prompts, answers, addresses and
user agents are in none. To delete a person, `python -m services.ledger.forget` replaces their key's name everywhere.
"""
