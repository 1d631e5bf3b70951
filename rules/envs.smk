# One Python environment per engine, from its lock file. The copied lock is written last and stands for the whole.
rule env:
    input:
        "envs/{engine}/requirements.lock",
    output:
        ".envs/{engine}/requirements.lock",
    log:
        "logs/env/{engine}.log",
    message:
        "Building the environment of engine {wildcards.engine}"
    script:
        "../scripts/env.py"
