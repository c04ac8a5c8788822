"""What a budget and the order of micro-batches cost a sharded job of samples/tinylm, and what recording a trace costs."""
import json
import subprocess

LAYERS, DIM = 8, 128
MODEL = [f"app.dim={DIM}", f"app.layers={LAYERS}", "coordinator.planned.reduce_bucket=0"]
BLOCK = 4 * (12 * DIM * DIM + 13 * DIM)  # bytes of a block's weights: attention, a layer of four times the width, norms, biases
ROOM = (2, 4, 8)  # blocks with their gradients and what arrives for them


def budget_of(blocks, workers):
    """With the alignment of the arena's pieces."""
    return blocks * (2 * BLOCK + BLOCK * (workers - 1) // workers + 64 * 1024)


def ways(workers):
    """Name, and what it sets."""
    made = [(f"{how}, {order}", [f'coordinator.use="{how}"', f'app.order="{order}"'])
            for how in ("zero3", "eager", "planned") for order in ("pass", "layer")]
    for blocks in ROOM:
        made += [(f"planned, {order}, room for {blocks} blocks",
                  ['coordinator.use="planned"', f'app.order="{order}"', f"coordinator.budget={budget_of(blocks, workers)}"])
                 for order in ("pass", "layer")]
    return made


def waits_of(jobs, workers, sets, file):
    """Of a traced job: waits of a rank in a step, and the milliseconds that they took, in the mean of all but the first two."""
    jobs.job(jobs.given.config, sets, "--workers", str(workers), "--trace", file)
    report = json.loads(subprocess.run([jobs.given.pliant, "trace", file, "--json"], check=True, stdout=subprocess.PIPE).stdout)
    steps = [step for rank in report["ranks"] for step in rank["steps"][2:]]
    return (sum(step["waits"] for step in steps) / len(steps), sum(step["waited_us"] for step in steps) / len(steps) / 1e3)


def measured(jobs, folder, rounds, spread, ratios, tell, tell_figures):
    """Speeds by turns; what is gathered and waited for from one job each."""
    workers = max(jobs.given.workers)
    how = [*jobs.given.set, *MODEL, f"run.max_steps={jobs.given.steps}", "run.snapshot_every=0", "run.deterministic=false"]
    all_ways = ways(workers)
    speeds = {name: [] for name, _ in all_ways}
    gathers = {}
    for number in range(rounds):
        tell(f"schedules, {workers} workers, round {number + 1} of {rounds}...")
        for name, sets in all_ways:
            summary, commits = jobs.job(jobs.given.config, [*how, *sets], "--workers", str(workers))
            speeds[name].append(summary["tokens_per_second"])
            gathers[name] = {kind: count / len(commits) for kind, count in summary["gathers_of_a_rank"].items()}
        tell_figures(**{name: f"{found[-1]:,.0f} tokens/s" for name, found in speeds.items()})
    rows = []
    reference = all_ways[0][0]
    for name, sets in all_ways:
        waits, waited = waits_of(jobs, workers, [*how, *sets], folder / "trace.json")
        rows.append({"way": name, "workers": workers, "tokens_per_second": spread(speeds[name]),
                     "to_first": ratios(speeds[name], speeds[reference]), "gathered_a_step": gathers[name]["parameters"],
                     "mib_a_step": gathers[name]["bytes"] / (1 << 20), "waits_a_step": waits, "waited_ms_a_step": waited})
    return rows


def traced(jobs, folder, rounds, spread, ratios, tell, tell_figures):
    """Jobs with and without --trace by turns."""
    workers = max(jobs.given.workers)
    how = [*jobs.given.set, f"run.max_steps={jobs.given.steps}", "run.snapshot_every=0", "run.deterministic=false",
           'coordinator.use="planned"']
    with_trace, without = [], []
    for number in range(rounds):
        tell(f"traces, {workers} workers, round {number + 1} of {rounds}...")
        for records in (True, False) if number % 2 == 0 else (False, True):
            words = ["--trace", folder / "trace.json"] if records else []
            summary, _ = jobs.job(jobs.given.config, how, "--workers", str(workers), *words)
            (with_trace if records else without).append(summary["tokens_per_second"])
        tell_figures(with_trace=f"{with_trace[-1]:,.0f} tokens/s", without=f"{without[-1]:,.0f} tokens/s")
    return [{"workers": workers, "with_trace": spread(with_trace), "without": spread(without),
             "with_to_without": ratios(with_trace, without)}]
