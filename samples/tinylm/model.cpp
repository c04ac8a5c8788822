// The model whole in every process, and the same in shards. Torch stays in this file and what it alone includes.
#include "model.hpp"

#include <ATen/CPUGeneratorImpl.h>

#include <utility>

#include "blas_threads.hpp"
#include "network.hpp"
#include "seat.hpp"
#include "sharded_model.hpp"

namespace tinylm {

struct Model::State {
  Network network;
  Tensor flat;                   ///< all parameters
  Tensor flat_gradient;          ///< same order
  std::vector<Parameter> parts;  ///< those that were taken
  size_t taken = 0;              ///< weights of them

  State(const ModelShape& shape, uint64_t seed) {
    use_one_blas_thread();
    at::set_num_threads(1);
    const int64_t d = shape.dim;
    const int64_t per_block = 12 * d * d + 13 * d;
    const int64_t total = shape.vocab * d + shape.max_sequence * d + shape.layers * per_block + 2 * d;
    flat = at::empty({total});
    flat_gradient = at::zeros({total});
    at::Generator random = at::detail::createCPUGenerator(seed);
    network.build(shape, [&](const std::string&, const std::vector<int64_t>& sizes, double first, bool decays) {
      Tensor leaf = take_part(sizes, decays);
      fill(leaf, first, random);
      return leaf;
    });
    TORCH_INTERNAL_ASSERT(static_cast<int64_t>(taken) == total);
  }

  /// The next parameters of `flat`, as a leaf whose gradient is the same part of `flat_gradient`.
  Tensor take_part(at::IntArrayRef sizes, bool decay) {
    int64_t count = 1;
    for (const int64_t size : sizes) count *= size;
    const auto first = static_cast<int64_t>(taken);
    parts.push_back({static_cast<uint64_t>(count), decay});
    taken += parts.back().size;
    Tensor leaf = flat.narrow(0, first, count).view(sizes).detach();
    leaf.set_requires_grad(true);
    leaf.mutable_grad() = flat_gradient.narrow(0, first, count).view(sizes);
    return leaf;
  }
};

Model::Model(const ModelShape& shape, uint64_t seed) : state_(std::make_unique<State>(shape, seed)) {}
Model::~Model() = default;

std::span<float> Model::parameters() {
  return {state_->flat.data_ptr<float>(), state_->taken};
}
std::span<const float> Model::parameters() const {
  return {state_->flat.data_ptr<float>(), state_->taken};
}
std::span<const float> Model::gradient() const {
  return {state_->flat_gradient.data_ptr<float>(), state_->taken};
}
const std::vector<Parameter>& Model::parts() const {
  return state_->parts;
}

double Model::loss_and_gradient(std::span<const Sequence> sequences) {
  state_->flat_gradient.zero_();
  if (sequences.empty()) return 0;
  const Tensor sum = state_->network.summed_loss(lay_out(sequences));
  sum.backward();
  return static_cast<double>(sum.item<float>());
}

double Model::loss(std::span<const Sequence> sequences) const {
  if (sequences.empty()) return 0;
  const at::NoGradGuard no_gradient;
  return static_cast<double>(state_->network.summed_loss(lay_out(sequences)).item<float>());
}

// The same in shards.

namespace {

/// A module and the weights that it uses.
struct Part {
  pliant::ModuleId id{};
  std::vector<size_t> seats;
};

/// Enters and leaves a module.
class Visit {
 public:
  Visit(pliant::ShardedModel& shards, pliant::ModuleId module, pliant::Direction direction)
      : shards_(shards), module_(module), direction_(direction) {
    shards_.enter(module_, direction_);
  }
  void leave() { shards_.leave(module_, direction_); }

 private:
  pliant::ShardedModel& shards_;
  pliant::ModuleId module_;
  pliant::Direction direction_;
};

}  // namespace

struct ShardedLm::State {
  pliant::ShardedModel& shards;
  Network network;
  std::vector<Seat> seats;
  std::vector<bool> decays;
  pliant::ModuleId root{};
  Part embed, head;
  std::vector<Part> blocks;

  State(pliant::ShardedModel& into, const ModelShape& shape, uint64_t seed) : shards(into) {
    use_one_blas_thread();
    at::set_num_threads(1);
    const auto random = std::make_shared<at::Generator>(at::detail::createCPUGenerator(seed));
    network.build(shape, [&](const std::string& name, const std::vector<int64_t>& sizes, double first, bool decay) {
      const bool is_first = seats.empty();
      pliant::ParameterSpec spec;
      spec.name = name;
      spec.shape = sizes;
      spec.initialise = [random, sizes, first, is_first, seed](std::span<float> values) {
        if (is_first) random->set_current_seed(seed);
        Tensor whole = at::from_blob(values.data(), sizes);
        fill(whole, first, *random);
      };
      seats.emplace_back(shards.add(std::move(spec)), sizes);
      decays.push_back(decay);
      return seats.back().leaf;
    });
    add_modules();
  }

  Part part_of(const std::string& name, size_t first, size_t count, std::vector<size_t> external) {
    Part made;
    pliant::ModuleSpec spec;
    spec.name = name;
    spec.parent = root;
    for (size_t i = first; i < first + count; ++i) {
      made.seats.push_back(i);
      spec.own.push_back(seats[i].id);
    }
    for (const size_t i : external) {
      made.seats.push_back(i);
      spec.external.push_back(seats[i].id);
    }
    made.id = shards.add(std::move(spec));
    return made;
  }

  void add_modules() {
    constexpr size_t kOfBlock = 12;
    pliant::ModuleSpec whole;
    whole.name = "tinylm";
    root = shards.add(std::move(whole));
    embed = part_of("embed", 0, 2, {});
    for (size_t i = 0; i < network.blocks.size(); ++i) {
      blocks.push_back(part_of("blocks." + std::to_string(i), 2 + i * kOfBlock, kOfBlock, {}));
    }
    head = part_of("head", seats.size() - 2, 2, {0});
  }

  /// Has the weights of a part sit where they are whole, and nowhere once it ends, also by an exception: what is
  /// released belongs to others.
  class Seated {
   public:
    Seated(State& state, const Part& part, bool with_gradient) : seats_(state.seats), part_(part) {
      for (const size_t i : part.seats) {
        Seat& seat = seats_[i];
        seat.sit_at(state.shards.value(seat.id));
        if (with_gradient) seat.add_gradient_to(state.shards.gradient(seat.id));
      }
    }
    ~Seated() {
      for (const size_t i : part_.seats) seats_[i].stand_up();
    }
    Seated(const Seated&) = delete;
    Seated& operator=(const Seated&) = delete;

   private:
    std::vector<Seat>& seats_;
    const Part& part_;
  };

  /// Runs `compute` with the weights of `part`; without rows there is nothing to compute.
  template <class Compute>
  void visit(const Part& part, pliant::Direction direction, bool has_rows, Compute&& compute) {
    Visit visit(shards, part.id, direction);
    if (has_rows) {
      const Seated seated(*this, part, direction == pliant::Direction::kBackward);
      compute();
    }
    visit.leave();
  }

  /// Block by block: the graph of each is cut off from the others, and its backward runs while its weights are whole.
  double pass(std::span<const Sequence> sequences) {
    using pliant::Direction;
    const bool has_rows = !sequences.empty();
    const Layout layout = has_rows ? lay_out(sequences) : Layout{};
    std::vector<Tensor> ins(blocks.size() + 1);
    std::vector<Tensor> outs(blocks.size() + 1);
    Tensor sum;
    const auto hand_on = [&](size_t to, const Tensor& out) {
      outs[to] = out;
      ins[to] = out.detach().set_requires_grad(true);
    };
    Visit whole(shards, root, Direction::kForward);
    visit(embed, Direction::kForward, has_rows, [&] { hand_on(0, network.embed(layout)); });
    for (size_t i = 0; i < blocks.size(); ++i) {
      visit(blocks[i], Direction::kForward, has_rows,
            [&] { hand_on(i + 1, network.pass(network.blocks[i], ins[i], layout)); });
    }
    visit(head, Direction::kForward, has_rows, [&] { sum = network.loss(ins.back(), layout); });
    whole.leave();
    Visit back(shards, root, Direction::kBackward);
    visit(head, Direction::kBackward, has_rows, [&] { sum.backward(); });
    for (size_t i = blocks.size(); i-- > 0;) {
      visit(blocks[i], Direction::kBackward, has_rows, [&] { outs[i + 1].backward(ins[i + 1].grad()); });
    }
    visit(embed, Direction::kBackward, has_rows, [&] { outs[0].backward(ins[0].grad()); });
    back.leave();
    return has_rows ? static_cast<double>(sum.item<float>()) : 0.0;
  }
};

ShardedLm::ShardedLm(pliant::ShardedModel& shards, const ModelShape& shape, uint64_t seed)
    : state_(std::make_unique<State>(shards, shape, seed)) {}
ShardedLm::~ShardedLm() = default;

double ShardedLm::loss_and_gradient(std::span<const Sequence> sequences) {
  return state_->pass(sequences);
}
bool ShardedLm::decays(pliant::ParameterId parameter) const {
  return state_->decays[static_cast<size_t>(parameter)];
}
uint64_t ShardedLm::weights() const {
  uint64_t count = 0;
  for (const Seat& seat : state_->seats) count += static_cast<uint64_t>(seat.leaf.numel());
  return count;
}

}  // namespace tinylm
