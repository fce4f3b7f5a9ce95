"""Lines that a person copies: a model called by curl and by OpenAI's library, with endpoint and key in variables."""

from __future__ import annotations

import json
from typing import Any

_CURL = """\
curl "{base}/{path}" \\
  -H "Authorization: Bearer $OPENAI_API_KEY" -H "Content-Type: application/json" \\
  -d '{body}'
"""
_CHAT = """\
import openai

client = openai.OpenAI()  # reads both variables
answer = client.chat.completions.create(
    model={model}, messages=[{{"role": "user", "content": "Hello"}}]
)
print(answer.choices[0].message.content)
"""
_EMBED = """\
import openai

client = openai.OpenAI()  # reads both variables
answer = client.embeddings.create(model={model}, input="Hello")
print(len(answer.data[0].embedding))
"""
_PROMPT = """\
import openai

# Reads OPENAI_BASE_URL and OPENAI_API_KEY.
client = openai.OpenAI()
answer = client.responses.create(
    model={model},
    prompt={prompt},
    input="Hello",
)
print(answer.output_text)
"""


def examples(endpoint: str, key: str, model: str, task: str) -> dict[str, str]:
    """By their titles. A model that OpenAI's library does not know how to ask has no Python."""
    base = "$OPENAI_BASE_URL"
    body: dict[str, Any] = {"model": model}
    if task == "embed":
        path, python = "embeddings", _EMBED
        body["input"] = "Hello"
    elif task == "rerank":
        base, path, python = endpoint, "cohere/v2/rerank", ""
        body |= {"query": "Hello", "documents": ["Good morning", "The weather"]}
    else:
        path, python = "chat/completions", _CHAT
        body["messages"] = [{"role": "user", "content": "Hello"}]
    shown = {
        "Environment": f"export OPENAI_BASE_URL={endpoint}/v1\nexport OPENAI_API_KEY={key}\n",
        "curl": _CURL.format(base=base, path=path, body=json.dumps(body)),
        "Python": python.format(model=json.dumps(model)),
    }
    return {title: text for title, text in shown.items() if text}


def prompt_example(model: str, prompt: str, variables: list[str]) -> str:
    """A prompt by id, in Python."""
    named: dict[str, Any] = {"id": prompt}
    if variables:
        named["variables"] = dict.fromkeys(variables, "...")
    shown = json.dumps(named, indent=4).replace("\n", "\n    ")
    return _PROMPT.format(model=json.dumps(model), prompt=shown)
