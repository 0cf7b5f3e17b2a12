"""The examples at the end of each command's help. They belong together, from the first deployment
on, and each is tried as it stands by a test.
"""

from typing import Final

EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "deploy": (
        "shem deploy counter.wasm",
        "shem deploy bank.wasm --env CURRENCY=EUR --host rates:lookup",
        "shem deploy bank.wasm --host rates:lookup --retry 'rates:status=429|5xx,max-attempts=10'",
        "shem deploy bank.wasm --file rates.csv:/etc/rates --host rates:lookup",
        "shem deploy counter.wasm --limit memory=64MiB --retry max-attempts=5,max-delay=10s",
    ),
    "components": ("shem components", "shem components --json"),
    "component": ("shem component counter",),
    "invoke": (
        "shem invoke counter/alice add 5 --key order-17",
        """shem invoke bank/alice transfer '"bob"' 250""",
        "shem invoke counter/alice add 1 --key order-18 --no-wait",
        "shem invoke counter/alice get --crash-at before-result",
    ),
    "cancel": ("shem cancel counter/alice order-18",),
    "run": ("shem run --until-idle", "shem run"),
    "workers": ("shem workers", "shem workers counter --status failed --limit 10"),
    "worker": ("shem worker counter/alice",),
    "oplog": (
        "shem oplog counter/alice",
        "shem oplog counter/alice --search 'order-17 OR level:stderr'",
        "shem oplog counter/alice --search 'kind:start function:wall-clock NOT hidden:true'",
        "shem oplog counter/alice --kind log --follow",
    ),
    "files": ("shem files bank/alice", "shem files bank/alice /etc/rates"),
    "crash": ("shem crash counter/alice",),
    "replay": ("shem replay counter/alice --to 4",),
    "interrupt": ("shem interrupt counter/alice",),
    "resume": ("shem resume counter/alice",),
    "promise list": ("shem promise list bank/alice",),
    "promise show": ("shem promise show bank/alice 7",),
    "promise complete": ("""shem promise complete bank/alice 7 '"approved"'""",),
    "resolve": (
        "shem resolve bank/alice 12 --repeat",
        "shem resolve bank/alice 12 --value 250",
    ),
    "revert": ("shem revert bank/alice --last 1", "shem revert counter/alice --to 5"),
    "delete": ("shem delete counter/alice",),
    "torture": (
        "shem torture counter transfers.txt --recovery-kills 1",
        "shem torture bank.wasm transfers.txt --host rates:lookup --at commit:3",
    ),
    "demo": ("shem demo",),
    "completion": (
        "source <(shem completion bash)",
        "shem completion fish > ~/.config/fish/completions/shem.fish",
    ),
}


def epilog(command: str) -> str:
    """As click takes it: the lines stay as they are."""
    examples = EXAMPLES[command]
    heading = "Example:" if len(examples) == 1 else "Examples:"
    return "\n".join(("\b", heading, *(f"  {example}" for example in examples)))
