"""The steps of a job with next to no work in them, as session_steps.cpp makes them. Prints the microseconds of a step, without the first ones."""
import sys
import time

import numpy

import pliant.elastic

ELEMENTS = 1000


class Weights:
    gradient_size = ELEMENTS

    def __init__(self):
        self.values = numpy.zeros(ELEMENTS, "float32")

    def arrays(self):
        return [("weights", self.values)]


def train(session):
    weights = Weights()
    gradient = numpy.ones(ELEMENTS, "float32")
    first = session.config.app_int("first")
    total = 0
    session.start(numpy.ones(session.config.app_int("sequences"), "int32"), state=weights)
    for step in session:
        if step.index == first:
            began = time.perf_counter()
        for rows in step.micro_batches:
            total += int(step.batch.ids_of(rows).sum())
            step.add(rows, 1.0, gradient)
        if committed := step.commit():
            weights.values[0] -= step.learning_rate * committed.gradient[0]
        steps = step.index + 1
    print(f"{(time.perf_counter() - began) / (steps - first) * 1e6:.3f} {total}")


if __name__ == "__main__":
    sys.exit(pliant.elastic.run_worker(train))
