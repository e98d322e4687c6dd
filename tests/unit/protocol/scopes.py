"""The scopes that are explored, with their sizes when this was written.

  scope                                            states      steps   depth   CPU s
  two sessions, everything kept                    55 308    100 968      21     2.4
  late reader                                      50 977    108 162      22     2.4
  two lost answers                                 82 737    254 118      22     5.0
  three sessions, cancel, checkpoints              47 579    143 591      24     2.9
  three sessions, lost answer                      57 892    176 313      23     3.5
  lost worker                                      21 125     54 420      21     1.1
  expiry beside cancel                             31 269     82 667      20     1.3
  delayed checkpoint                               28 763     76 200      22     1.4
  two requests in one log                          87 177    261 524      28     5.8
and in ``DEEP``, which ``python -m tests.unit.protocol`` explores too:
  three sessions, cancel, checkpoints, lost       666 212  2 400 107      27      48
  three sessions, two lost answers                376 229  1 360 051      26      34
  two requests, lost answer                     1 193 043  4 000 854      32      88
  two requests, cancel                          1 127 524  3 874 672      30      89
"""

from tests.unit.protocol.scope import Mutation, Scope

SCOPES = {
    "two sessions, everything kept": Scope(),
    "late reader": Scope(cancels=False, has_late_reader=True),
    "two lost answers": Scope(lost=2, keeps_void=False),
    "three sessions, cancel, checkpoints": Scope(sessions=3, lost=0, keeps_void=False),
    "three sessions, lost answer": Scope(
        sessions=3, cancels=False, checkpoints=0, keeps_void=False
    ),
    "lost worker": Scope(cancels=False, worker_losses=1, keeps_void=False),
    "expiry beside cancel": Scope(expires=True, keeps_void=False),
    "delayed checkpoint": Scope(num_tokens=3, cancels=False, checkpoints=2, keeps_void=False),
    "two requests in one log": Scope(
        requests=2, num_tokens=1, lost=0, cancels=False, checkpoints=0, keeps_void=False
    ),
}
DEEP = {
    "three sessions, cancel, checkpoints, lost": Scope(sessions=3, keeps_void=False),
    "three sessions, two lost answers": Scope(
        sessions=3, lost=2, cancels=False, checkpoints=0, keeps_void=False
    ),
    "two requests, lost answer": Scope(
        requests=2, num_tokens=1, cancels=False, checkpoints=0, keeps_void=False
    ),
    "two requests, cancel": Scope(
        requests=2, num_tokens=1, lost=0, checkpoints=0, keeps_void=False
    ),
}
MUTANTS = {
    Mutation.NO_FENCE: Scope(mutation=Mutation.NO_FENCE),
    Mutation.SESSION_FENCE: Scope(
        requests=2,
        num_tokens=1,
        lost=0,
        cancels=False,
        checkpoints=0,
        mutation=Mutation.SESSION_FENCE,
    ),
    Mutation.UNCHECKED_TERMINAL: Scope(mutation=Mutation.UNCHECKED_TERMINAL),
    Mutation.DECIDE_UNCONFIRMED: Scope(worker_losses=1, mutation=Mutation.DECIDE_UNCONFIRMED),
    Mutation.TRIM_BEYOND_CHECKPOINT: Scope(mutation=Mutation.TRIM_BEYOND_CHECKPOINT),
    Mutation.LATE_CHECKPOINT: Scope(
        num_tokens=3, cancels=False, checkpoints=2, mutation=Mutation.LATE_CHECKPOINT
    ),
    Mutation.START_AGAIN: Scope(mutation=Mutation.START_AGAIN),
    Mutation.UNMARKED_READER: Scope(has_late_reader=True, mutation=Mutation.UNMARKED_READER),
}
