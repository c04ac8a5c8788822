"""What elasticity.py found, as tables in Markdown: medians, and in brackets the least and the largest."""


def rate(found):
    return f"{found['median']:,.0f} ({found['least']:,.0f} to {found['largest']:,.0f})"


def part(found):
    return f"{found['median']:.3f} ({found['least']:.3f} to {found['largest']:.3f})"


def milliseconds(found):
    return f"{1e3 * found['median']:.2f} ms ({1e3 * found['least']:.2f} to {1e3 * found['largest']:.2f})"


def mebibytes(found):
    return f"{found / (1 << 20):,.0f}"


def spread_mebibytes(found):
    if found["least"] == found["largest"]:
        return mebibytes(found["median"])
    return f"{mebibytes(found['median'])} ({mebibytes(found['least'])} to {mebibytes(found['largest'])})"


def fitted(found):
    return f"{mebibytes(found['a'])} + {mebibytes(found['b'])} / N"


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "| " + " | ".join(["---"] * len(head)) + " |",
            *("| " + " | ".join(row) + " |" for row in rows), ""]


def text_of(document):
    about = document["machine"]
    lines = [f"{about['cpu']}, {about['cores']} cores, load {about['load_before']} before the first run and "
             f"{about['load_after']} at the end; {document['steps']} steps a run, {document['rounds']} rounds", ""]
    if "one_worker" in document:
        one = document["one_worker"]
        lines += table(["one worker", "tokens/s", "of the bare loop"],
                       [["bare loop", rate(one["bare"]), "1"], ["fast", rate(one["fast"]), part(one["fast_to_bare"])],
                        ["deterministic", rate(one["deterministic"]), part(one["deterministic_to_bare"])]])
    if "workers" in document:
        lines += table(["workers", "fast, tokens/s", "deterministic", "of fast", "DistributedDataParallel", "fast to that"],
                       [[str(row["workers"]), rate(row["fast"]), rate(row["deterministic"]), part(row["deterministic_to_fast"]),
                         rate(row["ddp"]) if "ddp" in row else "-", part(row["fast_to_ddp"]) if "ddp" in row else "-"]
                        for row in document["workers"]])
    if "digests" in document:
        lines += table(["workers", "digest_every = 1, tokens/s", "digest_every = 0", "ratio"],
                       [[str(row["workers"]), rate(row["every_step"]), rate(row["never"]), part(row["every_step_to_never"])]
                        for row in document["digests"]])
    if "recovery" in document:
        lines += table(["trainer", "workers", "on_loss", "kills", "lost by a kill", "a usual step", f"all within {1e3 * document['goal_s']:g} ms"],
                       [[row["trainer"], str(row["workers"]), row["on_loss"], str(row["seconds_lost"]["n"]), milliseconds(row["seconds_lost"]),
                         milliseconds(row["usual_step_s"]), "yes" if row["within_goal"] else "no"]
                        for row in document["recovery"]])
    if "sharded" in document:
        ways = [name[:-len("_to_replicated")] for name in document["sharded"][0] if name.endswith("_to_replicated")]
        lines += table(["workers", "mode", "replicated, tokens/s", *(head for way in ways for head in (way, "of replicated"))],
                       [[str(row["workers"]), "deterministic" if row["deterministic"] else "fast", rate(row["replicated"]),
                         *(cell for way in ways for cell in (rate(row[way]), part(row[f"{way}_to_replicated"])))]
                        for row in document["sharded"]])
    if "schedules" in document:
        first = document["schedules"][0]["way"]
        lines += table(["schedule", "tokens/s", f"of {first}", "gathered a step", "MiB", "waits", "ms"],
                       [[row["way"], rate(row["tokens_per_second"]), part(row["to_first"]), f"{row['gathered_a_step']:,.0f}",
                         f"{row['mib_a_step']:.1f}", f"{row['waits_a_step']:.1f}", f"{row['waited_ms_a_step']:.1f}"]
                        for row in document["schedules"]])
    if "traces" in document:
        lines += table(["workers", "with --trace, tokens/s", "without", "ratio"],
                       [[str(row["workers"]), rate(row["with_trace"]), rate(row["without"]), part(row["with_to_without"])]
                        for row in document["traces"]])
    if "memory" in document:
        lines += table(["MiB of a worker", *(f"{n} workers" for n in (1, 2, 4)), "a + b / N", "by its books", "a + b / N"],
                       [[row["how"], *(spread_mebibytes(one["pss"]) for one in row["workers"]), fitted(row["pss_fit"]),
                         ", ".join(spread_mebibytes(one["books"]) for one in row["workers"]) if row["how"] != "replicated" else "-",
                         fitted(row["books_fit"]) if row["how"] != "replicated" else "-"] for row in document["memory"]])
    if "moves" in document:
        lines += table(["workers", "state, bytes", "sent", "the least", "sent to the least"],
                       [[f"{row['before']} to {row['after']}", f"{row['state']:,}", f"{row['sent']:,}", f"{row['least']:,.0f}",
                         f"{row['sent_to_least']:.3f}"] for row in document["moves"]])
    lines += [f"left out: {name}: {why}" for name, why in document["left_out"].items()]
    return "\n".join(lines)
