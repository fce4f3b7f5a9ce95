"""Stand-in for the pulumi-command 1.2.1 provider plugin: `command:local:Command` and `command:local:run`.

It speaks the official plugin's protocol and keeps the same state, so either can go on where the other stopped.
`command:remote:*` is refused. Stricter than the official plugin in two things: a failed command's error and every log
line have the values of secret inputs masked, and a preview shows "unknown" for each output that the update may change.
"""
