"""`python -m lab.plugins.command ENGINE_ADDRESS`: what the engine starts as `pulumi-resource-command`."""

from lab.plugins.command.process import JobRunner
from lab.plugins.command.provider import CommandProvider
from lab.plugins.protocol import EngineLog, serve

# Longer than the time that a command gets to end by itself.
_END_WAIT_S = 6.0


def main() -> None:
    """Serve until the engine goes; commands that still run go with it."""
    runner = JobRunner()

    def make(log: EngineLog) -> CommandProvider:
        return CommandProvider(log, runner)

    def end() -> None:
        runner.cancel()
        runner.wait(_END_WAIT_S)

    serve(make, on_end=end)


if __name__ == "__main__":
    main()
