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

  /// A micro-batch on its way through the blocks. The graph of each block is cut off from the others, so that its
  /// backward runs while its weights are whole.
  struct Course {
    bool has_rows = false;
    Layout layout;
    std::vector<Tensor> ins, outs;  ///< of each block, and of the head and the embedding
    Tensor sum;

    Course(std::span<const Sequence> sequences, size_t blocks)
        : has_rows(!sequences.empty()),
          layout(has_rows ? lay_out(sequences) : Layout{}),
          ins(blocks + 1),
          outs(blocks + 1) {}
    void hand_on(size_t to, const Tensor& out) {
      outs[to] = out;
      ins[to] = out.detach().set_requires_grad(true);
    }
    void back(size_t from) { outs[from].backward(ins[from].grad()); }
  };

  /// Runs `compute` for one micro-batch after the other with the weights of `part`; without rows there is nothing to
  /// compute.
  template <class Compute>
  void visit(const Part& part, pliant::Direction direction, std::vector<Course>& courses, Compute&& compute) {
    const bool is_backward = direction == pliant::Direction::kBackward;
    Visit visit(shards, part.id, direction);
    for (size_t i = 0; i < courses.size(); ++i) {
      if (is_backward) shards.begin_micro_batch(i);
      if (!courses[i].has_rows) continue;
      const Seated seated(*this, part, is_backward);
      compute(courses[i]);
    }
    visit.leave();
  }

  std::vector<double> evaluate(std::span<const Sequence> sequences) {
    using pliant::Direction;
    const at::NoGradGuard no_gradient;
    std::vector<Course> all;
    for (const Sequence& one : sequences) all.emplace_back(std::span(&one, 1), 0);
    Visit whole(shards, root, Direction::kForward);
    visit(embed, Direction::kForward, all, [&](Course& one) { one.ins[0] = network.embed(one.layout); });
    for (size_t i = 0; i < blocks.size(); ++i) {
      visit(blocks[i], Direction::kForward, all,
            [&](Course& one) { one.ins[0] = network.pass(network.blocks[i], one.ins[0], one.layout); });
    }
    visit(head, Direction::kForward, all, [&](Course& one) { one.sum = network.loss(one.ins[0], one.layout); });
    whole.leave();
    std::vector<double> losses;
    for (const Course& one : all) losses.push_back(static_cast<double>(one.sum.item<float>()));
    return losses;
  }

  std::vector<double> pass(std::span<const std::vector<Sequence>> micro_batches) {
    using pliant::Direction;
    std::vector<Course> all;
    for (const std::vector<Sequence>& sequences : micro_batches) all.emplace_back(sequences, blocks.size());
    Visit whole(shards, root, Direction::kForward);
    visit(embed, Direction::kForward, all, [&](Course& one) { one.hand_on(0, network.embed(one.layout)); });
    for (size_t i = 0; i < blocks.size(); ++i) {
      visit(blocks[i], Direction::kForward, all,
            [&](Course& one) { one.hand_on(i + 1, network.pass(network.blocks[i], one.ins[i], one.layout)); });
    }
    visit(head, Direction::kForward, all, [&](Course& one) { one.sum = network.loss(one.ins.back(), one.layout); });
    whole.leave();
    Visit back(shards, root, Direction::kBackward);
    visit(head, Direction::kBackward, all, [](Course& one) { one.sum.backward(); });
    for (size_t i = blocks.size(); i-- > 0;) {
      visit(blocks[i], Direction::kBackward, all, [i](Course& one) { one.back(i + 1); });
    }
    visit(embed, Direction::kBackward, all, [](Course& one) { one.back(0); });
    back.leave();
    std::vector<double> losses;
    for (const Course& one : all) losses.push_back(one.has_rows ? static_cast<double>(one.sum.item<float>()) : 0.0);
    return losses;
  }
};

ShardedLm::ShardedLm(pliant::ShardedModel& shards, const ModelShape& shape, uint64_t seed)
    : state_(std::make_unique<State>(shards, shape, seed)) {}
ShardedLm::~ShardedLm() = default;

std::vector<double> ShardedLm::losses_and_gradients(std::span<const std::vector<Sequence>> micro_batches) {
  return state_->pass(micro_batches);
}
std::vector<double> ShardedLm::losses(std::span<const Sequence> sequences) {
  return state_->evaluate(sequences);
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
