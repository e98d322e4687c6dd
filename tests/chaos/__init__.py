"""Chaos: load on a whole stack whose parts are killed, paused and cut off at random, checked token by token.

settings ──▶ run ─┬─▶ cluster      the processes, each behind proxies of its own
                  ├─▶ asks         the requests, made of features, and what each answers undisturbed
                  ├─▶ load         clients that send them in every one of the ways; judge compares
                  ├─▶ disturb      the schedule's faults, done to the cluster
                  ├─▶ afterwards   what must be left when all is quiet: nothing
                  └─▶ report       figures; for a failure everything needed to understand and replay it
"""
