"""Which waiting request joins which worker, and when: pure decisions over state and time (docs/scheduling.md).

``plan.plan`` reads as the list of rules; each rule has a file:

    timers      1  what has expired, found by a heap
    ageing      2  when a request rises by a class
    ordering    3  deadline and arrival order inside a class
    buckets     5  prompts of similar length together, as a preference
    window      6  how long a busy worker's batch may wait to fill
    fit         7  what a worker's credits allow
    picks          the next request for a worker, by all of the above
    unserved   10  what no worker serves any more
    quarantine     who runs alone, and on which worker; which one is kept for that (``kept``)
    lanes          the order itself, kept sorted so that no plan ever sorts

Fairness among tenants (4) belongs between ordering and buckets, pre-emption (8) beside picks, placement (9)
into the choice of the worker in ``plan``.
"""
