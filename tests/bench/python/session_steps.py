"""The steps of a job with next to no work in them, as session_steps.cpp makes them. Prints the microseconds of a step, their median,
and those that this thread computed, their mean, without the first ones."""
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
    begun = []
    session.start(numpy.ones(session.config.app_int("sequences"), "int32"), state=weights)
    for step in session:
        begun.append(time.perf_counter_ns())
        if step.index == first:
            computed = time.thread_time_ns()
        for rows in step.micro_batches:
            seen.append(step.batch.ids_of(rows))
            step.add(rows, 1.0, gradient)
        if committed := step.commit():
            mean = committed.gradient
            weights.values[0] -= step.learning_rate * len(mean)
        steps = step.index + 1
    computed = (time.thread_time_ns() - computed) / (steps - first)
    took = sorted(end - begin for begin, end in zip(begun[first:], begun[first + 1 :]))
    print(f"{took[len(took) // 2] / 1e3:.3f} {computed / 1e3:.3f} {sum(int(ids.sum()) for ids in seen)}")


if __name__ == "__main__":
    sys.exit(pliant.elastic.run_worker(train))
