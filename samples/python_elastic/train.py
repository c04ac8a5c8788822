"""Softmax regression with numpy, in a loop that is resized in place. Start it with `pliant run`; workers may die and join at any time."""
import sys

import numpy

import pliant.elastic

POINTS, FEATURES, CLASSES = 2000, 8, 3


class Model:  # a pliant.elastic.TrainingState
    def __init__(self, seed):
        first = numpy.random.default_rng(seed).normal(0, 0.1, (FEATURES, CLASSES))
        self.weights = first.astype("float32")
        self.momentum = numpy.zeros_like(self.weights)
        self.gradient_size = self.weights.size

    def arrays(self):  # what workers that join copy, and snapshots keep
        return [("weights", self.weights), ("momentum", self.momentum)]

    def probabilities(self, x):
        powers = numpy.exp(x @ self.weights)
        return powers / powers.sum(axis=1, keepdims=True)

    def apply(self, gradient, rate):
        self.momentum *= 0.9
        self.momentum += gradient.reshape(self.weights.shape)
        self.weights -= numpy.float32(rate) * self.momentum


def points():
    """Points around one corner for each class. Data set i is the same on every worker."""
    random = numpy.random.default_rng(1)
    classes = random.integers(0, CLASSES, POINTS)
    corners = random.normal(0, 1, (CLASSES, FEATURES))
    return (corners[classes] + random.normal(0, 1, (POINTS, FEATURES))).astype("float32"), classes


def train(session):
    model = Model(session.seed)
    x, classes = points()
    session.start(numpy.ones(POINTS, "int32"), state=model, source="points", content=1)  # each point is a sequence of one token
    for step in session:
        for rows in step.micro_batches:
            ids = step.batch.ids_of(rows)
            error = model.probabilities(x[ids])
            loss = -numpy.log(error[range(len(ids)), classes[ids]]).sum()  # summed over the rows, as the gradient is
            error[range(len(ids)), classes[ids]] -= 1
            step.add(rows, loss, x[ids].T @ error)
        if committed := step.commit():  # else the group changed, and the step is handed out again
            model.apply(committed.gradient, step.learning_rate)
    right = (model.probabilities(x).argmax(axis=1) == classes).mean()
    print(f"{right:.1%} of the points are in their class")


if __name__ == "__main__":
    sys.exit(pliant.elastic.run_worker(train))
