"""Where an oplog may be cut, and where not."""

from types import SimpleNamespace

from executor.worker.cutting import Survey, refused_cut
from oplog.entry import (
    EMPTY_ARRAY,
    CompletionDelivered,
    End,
    InvocationFinished,
    InvocationStarted,
    NoOp,
    Outcome,
    Start,
)

STARTED = InvocationStarted(at=1, key="k", function="f")
START = Start(at=1, function="h", function_type="read-remote", request=EMPTY_ARRAY)
FINISHED = InvocationFinished(at=1, outcome=Outcome(exit=0))
NO_OP = NoOp(at=1)
END = End(at=1, start_index=3)
SEEN = CompletionDelivered(at=1, start_index=3)


class Entries:
    def __init__(self, *entries):
        self.all = list(enumerate(entries, 1))

    def page(self, first, limit):
        return self.all[first - 1 : first - 1 + limit]


def refusals(*entries):
    """What is said of each cut that is refused."""
    tail = len(entries)
    worker = SimpleNamespace(name="w", entries=Entries(*entries), status=SimpleNamespace(cuts=[]))
    said = {}
    for cut in range(1, tail + 1):
        survey = Survey(worker.entries, [], cut)
        survey.read(tail)
        if not survey.legal:
            refusal = refused_cut(worker, cut, tail)
            said[cut] = refusal.message.partition(": ")[2], refusal.hint.partition(": ")[2]
    return said


def test_a_cut_between_an_answer_and_where_the_guest_saw_it_is_refused():
    told = "it lies inside the call that begins at 3"
    assert refusals(NO_OP, STARTED, START, END, SEEN, FINISHED) == {
        3: (told, "2 or 5"),
        4: (told, "2 or 5"),
    }


def test_a_cut_before_an_answer_is_seen_in_a_later_invocation_is_refused_in_that_one():
    told = "it lies inside the call that begins at 3"
    history = NO_OP, STARTED, START, END, FINISHED, STARTED, NO_OP, SEEN, FINISHED
    assert refusals(*history) == {
        3: (told, "2 or 4"),
        6: (told, "5 or 8"),
        7: (told, "5 or 8"),
    }
