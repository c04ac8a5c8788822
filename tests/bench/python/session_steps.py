"""The steps of a job with next to no work in them, as session_steps.cpp makes them. Prints the microseconds of a step, and those that this thread
computed, without the first ones."""
import array
import sys
import time

import numpy

import pliant.elastic

ELEMENTS = 1000


class Weights:
    gradient_size = ELEMENTS

    def __init__(self):
        self.values = array.array("f", [0.0]) * ELEMENTS

    def arrays(self):
        return [("weights", self.values)]


def train(session):
    weights = Weights()
    gradient = numpy.ones(ELEMENTS, "float32")
    first = session.config.app_int("first")
    seen = []  # whose sum is taken at the end: what numpy takes for it is no part of a step
    session.start(numpy.ones(session.config.app_int("sequences"), "int32"), state=weights)
    for step in session:
        if step.index == first:
            began, computed = time.perf_counter(), time.thread_time()
        for rows in step.micro_batches:
            seen.append(step.batch.ids_of(rows))
            step.add(rows, 1.0, gradient)
        if committed := step.commit():
            mean = committed.gradient
            weights.values[0] -= step.learning_rate * len(mean)
        steps = step.index + 1
    took, computed = time.perf_counter() - began, time.thread_time() - computed
    print(f"{took / (steps - first) * 1e6:.3f} {computed / (steps - first) * 1e6:.3f} {sum(int(ids.sum()) for ids in seen)}")


if __name__ == "__main__":
    sys.exit(pliant.elastic.run_worker(train))
