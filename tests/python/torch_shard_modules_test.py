"""modules of torch of many kinds have the gradients of the plain model when they are cut over ranks."""
import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from sharded_core import Step, attempt, check_gradients, one_rank, sharded, take_step  # noqa: F401: a fixture of every test

WIDTH, LENGTH = 8, 5


class Scale(nn.Module):
    def forward(self, weight):
        return 2 * weight


def parametrized():
    linear = nn.Linear(WIDTH, WIDTH)
    parametrize.register_parametrization(linear, "weight", Scale())
    return linear


def normed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated in later releases
        return nn.utils.weight_norm(nn.Linear(WIDTH, WIDTH))


class Lists(nn.Module):
    """Parameters in a list and in a dictionary, and one that is of the module itself."""

    def __init__(self):
        super().__init__()
        self.list = nn.ParameterList([nn.Parameter(torch.randn(WIDTH, WIDTH)) for _ in range(2)])
        self.named = nn.ParameterDict({"a": nn.Parameter(torch.randn(WIDTH))})
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        for weight in self.list:
            x = torch.tanh(x @ weight)
        return (x + self.named["a"]) * self.scale


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x)[0]


class Channels(nn.Module):
    """The sequence is the image."""

    def __init__(self, kind, **options):
        super().__init__()
        self.layer = kind(WIDTH, WIDTH, 3, padding=1, **options)

    def forward(self, x):
        return self.layer(x.transpose(1, 2)).transpose(1, 2)


class Hidden(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.layer = kind(WIDTH, WIDTH, batch_first=True, **options)

    def forward(self, x):
        return self.layer(x)[0]


class Experts(nn.Module):
    """Which of two computes depends on the input: a part of them has no gradient."""

    def __init__(self):
        super().__init__()
        self.choose, self.experts = nn.Linear(WIDTH, 2), nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(2)])

    def forward(self, x):
        weights = torch.softmax(self.choose(x), -1)
        chosen = int(weights.sum((0, 1)).argmax())
        return self.experts[chosen](x) * weights[..., chosen : chosen + 1]


KINDS = {
    "attention": Attends,
    "bilinear": lambda: _Both(nn.Bilinear(WIDTH, WIDTH, WIDTH)),
    "convolution": lambda: Channels(nn.Conv1d, groups=2),
    "decoder": lambda: _Both(nn.TransformerDecoderLayer(WIDTH, 2, 16, dropout=0.0, batch_first=True)),
    "encoder": lambda: nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, batch_first=True, norm_first=True),
    "experts": Experts,
    "gru": lambda: Hidden(nn.GRU, bidirectional=False, num_layers=2),
    "instance norm": lambda: nn.InstanceNorm1d(LENGTH, affine=True),
    "lists": Lists,
    "lstm": lambda: Hidden(nn.LSTM, num_layers=2),
    "parametrized": parametrized,
    "prelu": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.PReLU()),
    "transposed": lambda: Channels(nn.ConvTranspose1d),
    "weight norm": normed,
}


class _Both(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x, x + 1)


class Model(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.first = nn.Linear(3, WIDTH)
        self.layers = nn.ModuleList([kind(), kind()])

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return torch.tanh(x).square().sum()


def made(kind):
    torch.manual_seed(1)
    return Model(KINDS[kind])


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("layers_are_units", [True, False])
def test_a_step_and_an_evaluation(kind, layers_are_units):
    model, plain = made(kind), made(kind)
    optimizer, usual = (torch.optim.SGD(one.parameters(), lr=0.01) for one in (model, plain))
    state, core = sharded(model, optimizer, units=None if layers_are_units else [])
    x = torch.randn(2, LENGTH, 3)
    for index in range(2):
        take_step(state, [lambda: model(x)], index)
        usual.zero_grad()
        loss = plain(x)
        check_gradients(model, core, plain, loss)
        loss = plain(x)
        loss.backward()
        optimizer.step()
        usual.step()
    model.eval()
    plain.eval()
    with attempt(state, Step()), torch.no_grad():
        assert torch.equal(model(x), plain(x))
    with attempt(state, Step()):
        assert all(torch.equal(one, theirs) for one, theirs in zip(state.state_dict().values(), plain.state_dict().values()))


@pytest.mark.parametrize("kind", ["lstm", "gru", "convolution", "encoder"])
def test_on_meta_first_values_are_those_of_reset_parameters(kind):
    with_values = made(kind)
    model = copy.deepcopy(with_values).to("meta")
    initialise = {"initialise": lambda name, tensor: tensor.normal_()} if kind == "encoder" else {}  # its attention has no reset_parameters
    state, core = sharded(model, **initialise)
    assert all(torch.isfinite(one).all() and one.abs().max() > 0 for one in core.weights)
    plain = copy.deepcopy(with_values)
    with attempt(state, Step()):
        plain.load_state_dict(state.state_dict())
    x = torch.randn(2, LENGTH, 3)
    take_step(state, [lambda: model(x)])
    check_gradients(model, core, plain, plain(x))
