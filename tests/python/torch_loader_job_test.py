"""a loader gives a job in Python packs and pieces of sequences as pliant.torch.collate flattens them, and reads none again where a rank is lost."""
import elastic_jobs
import pytest

FIXED = 'use = "fixed"\n[sampler.fixed]\norder = "random"'
SAMPLERS = {
    "packs": 'use = "next_fit"\n[sampler.next_fit]\nmax_tokens = 64\norder = "random"',
    "pieces": 'use = "concat"\n[sampler.concat]\nmax_tokens = 48\norder = "random"',
}
# A toy that learns from tokens, their labels and their places, one after the other: any other order would give other bits.
TOY = """
    def text(i):
        return [(i * 7919 + k * 104729) % 1009 for k in range(LENGTHS[i])]

    class Reader(Toy):
        def of_tokens(self, tokens, labels, places):
            loss, gradient = 0.0, numpy.zeros(ELEMENTS, "float32")
            for token, label, place in zip(tokens, labels, places):
                if label != -100:
                    error = self.weights[label % ELEMENTS] - numpy.float32((token + place) / 1040)
                    gradient[label % ELEMENTS] += error
                    loss += float(error * error) / 2
            return loss, gradient

    toy = Reader()
"""
# One worker, without a loader and without torch: what is in a micro-batch is put together from what the batch says.
BY_HAND = TOY + """
    session.start(LENGTHS, state=toy)
    for step in session:
        batch = step.batch
        for rows in step.micro_batches:
            tokens, labels, places = [], [], []
            for entry in range(batch.offsets[rows.start], batch.offsets[rows.stop]):
                piece = text(batch.ids[entry])
                if batch.first_tokens is not None:
                    piece = piece[batch.first_tokens[entry] :][: batch.token_counts[entry]]
                tokens += piece
                labels += [-100, *piece[1:]]
                places += range(len(piece))
            step.add(rows, *toy.of_tokens(tokens, labels, places))
        if committed := step.commit():
            toy.apply(committed.gradient, step.learning_rate)
    keep(toy)
"""
# Counts what is asked for, by step, row and sequence or piece.
BY_LOADER = TOY + """
    import collections
    import torch
    import pliant.torch

    asked = collections.Counter()

    def count(item):
        asked[item.position[:2], item.row, int(item), item.piece] += 1

    class Texts:
        def __getitem__(self, item):
            if isinstance(item, pliant.Item):
                count(item)
            return dict(input_ids=torch.tensor(text(item)), name=f"text {int(item)}")

    class Cut(pliant.torch.Packed):
        def __getitems__(self, items):
            for item in items:
                count(item)
            return super().__getitems__(items)

    loader = session.loader(DATASET, pliant.torch.collate, num_workers=2)
    session.start(LENGTHS, state=toy)
    for step in session:
        for rows, batch in zip(step.micro_batches, loader.of(step)):
            ids, labels, places = (batch[name][0].tolist() for name in ("input_ids", "labels", "position_ids"))
            assert batch["cu_seq_lens_q"].tolist() == [*(i for i, place in enumerate(places) if place == 0), len(ids)]
            step.add(rows, *toy.of_tokens(ids, labels, places))
        if committed := step.commit():
            toy.apply(committed.gradient, step.learning_rate)
    print("SAID", json.dumps([step.world_size, len(asked), sum(asked.values())]))
    keep(toy)
"""


@pytest.mark.parametrize(("sampler", "dataset"), [("packs", "Texts()"), ("pieces", "Cut(Texts())")])
def test_the_weights_are_those_of_tokens_put_together_by_hand(tmp_path, sampler, dataset):
    config = elastic_jobs.CONFIG.replace(FIXED, SAMPLERS[sampler])
    by_hand = elastic_jobs.run(tmp_path / "by_hand", BY_HAND, config=config)
    assert by_hand.code == 0 and len(by_hand.weights) == 1, by_hand.err + by_hand.said
    job = elastic_jobs.run(tmp_path / "job", BY_LOADER.replace("DATASET", dataset), workers=2, config=config, settings='on_loss = "shrink"',
                           options=["--inject=kill:rank=1,step=2,at=reduce"])
    ((world_size, asked, reads),) = elastic_jobs.said_by(job)
    assert world_size == 1 and asked == reads > 0
    assert job.weights == by_hand.weights and job.summary["steps"] == by_hand.summary["steps"]
    assert job.summary["samples_used_once"] == 2 * elastic_jobs.SEQUENCES and job.summary["samples_missing"] == job.summary["samples_repeated"] == 0
