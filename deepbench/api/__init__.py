"""The Python API: `import deepbench` offers its functions, and the command uses nothing else.

    filters     which cases: `cases`, and the filters that `measure` shares with it
    measuring   `measure`, `resume`, `alternate`, `measure_limits`, `selftest`, and sessions step by step
    groups      hosts, launchers and ranks: where groups of processes run
    results     `load`, and one class per kind of result file
    comparing   `compare`, `gate`, `rank`
    pages       `report`, `site`
    machine     this machine, its libraries, what disturbs measurements
    foreign     results of other programs
    text        errors, and how numbers, paths and commands are written

The wings have doors of their own: `networks/api.py`, `applications/api.py` and `fleets/api.py`.
"""
