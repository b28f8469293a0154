// Memory and steps of the executor.
#include "executor/executor.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace roofline {
namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int64_t num_blocks(const PackedWeight& weight) { return (weight.num_rows + kRowBlock - 1) / kRowBlock; }

int64_t tile_bytes(const PackedWeight& weight) { return num_blocks(weight) * weight.block_stride_bytes; }

// Marks the executor busy for a scope; a second step at the same time is refused, not interleaved.
class Busy {
 public:
  explicit Busy(std::atomic<bool>* flag) : flag_(flag) {
    if (flag->exchange(true, std::memory_order_acquire)) throw std::runtime_error("a step is already running on this executor");
  }
  ~Busy() { flag_->store(false, std::memory_order_release); }

 private:
  std::atomic<bool>* flag_;
};

struct PackTask {
  Weight* weight;
  const uint8_t* rows;
  std::vector<BlockRange> blocks;                      // [threads]
};

void pack_share(void* context, Worker& worker) {
  const auto& task = *static_cast<PackTask*>(context);
  const BlockRange mine = task.blocks[static_cast<size_t>(worker.index)];
  if (mine.begin >= mine.end) return;
  const PackedWeight& packed = task.weight->packed;
  pack_row_blocks(task.weight->scheme.c_str(), task.rows, packed.num_rows, packed.row_len, mine.begin, mine.end,
                  const_cast<uint8_t*>(packed.tiles));
}

std::vector<BlockRange> part_of_homes(const std::vector<BlockRange>& homes, int part, int num_parts) {
  std::vector<BlockRange> blocks;
  for (const BlockRange& home : homes) {
    const Range piece = share(home.end - home.begin, part, num_parts);
    blocks.push_back({home.begin + piece.begin, home.begin + piece.end});
  }
  return blocks;
}

}  // namespace

int64_t Executor::attention_bytes() const {
  int64_t most = 0;
  for (const auto& schedule : schedules_) {
    most = std::max(most, attention_scratch_bytes(schedule->tile_rows(), schedule->geometry().head_size));
  }
  return round_up(most, kCacheLineBytes);
}

int64_t Executor::partial_bytes() const {
  int64_t most = 0;
  for (const auto& schedule : schedules_) most = std::max(most, schedule->max_partial_bytes());
  return most;
}

int64_t Executor::lane_bytes() const {
  return kLinearScratchBytes + attention_bytes() + kColumnScratchLen * static_cast<int64_t>(sizeof(float));
}

MemoryUse Executor::memory() const {
  MemoryUse use{};
  for (const auto& weight : weights_) use.weights_bytes += tile_bytes(weight->packed);
  for (const auto& vector : vectors_) use.weights_bytes += static_cast<int64_t>(vector->size() * sizeof(float));
  for (const auto& layer : kv_layers_) use.kv_bytes += layer->block_stride_bytes * limits_.num_blocks;
  for (const auto& buffer : floats_) use.scratch_bytes += buffer->size_bytes();
  for (const auto& buffer : quants_) use.scratch_bytes += buffer->size_bytes();
  for (const auto& rope : ropes_) use.scratch_bytes += static_cast<int64_t>((rope->cos.size() + rope->sin.size()) * sizeof(float));
  use.scratch_bytes += limits_.num_threads * lane_bytes() + partial_bytes();
  return use;
}

void Executor::commit() {
  require_open();
  if (!has_logits_) throw std::invalid_argument("the executor has no logits phase");
  place_weights();
  place_kv();
  place_scratch();
  step_.row_seqs.resize(static_cast<size_t>(limits_.max_tokens));
  phase_s_.assign(phases_.size(), 0.0);
  is_serial_.assign(phases_.size(), false);
  for (size_t i = 0; i < phases_.size(); ++i) queues_.push_back(std::make_unique<ChunkQueue>(limits_.num_threads));
  pool_ = std::make_unique<ThreadPool>(limits_.num_threads, limits_.cpus);
}

void Executor::place_weights() {
  Layout layout;
  std::vector<int64_t> offsets;
  for (const auto& weight : weights_) offsets.push_back(layout.take(tile_bytes(weight->packed)));
  weight_arena_ = Arena(layout.total_bytes());
  for (size_t i = 0; i < weights_.size(); ++i) {
    Weight& weight = *weights_[i];
    weight.packed.tiles = weight_arena_.data() + offsets[i];
    if (!weight.home.empty()) continue;                // an expert: any thread may read any of it
    for (int t = 0; t < limits_.num_threads; ++t) {
      const Range blocks = share(num_blocks(weight.packed), t, limits_.num_threads);
      weight.home.push_back({blocks.begin, blocks.end});
    }
  }
  is_packed_.assign(weights_.size(), false);
  next_part_.assign(weights_.size(), 0);
}

void Executor::place_kv() {
  Layout layout;
  std::vector<int64_t> offsets;
  for (const auto& layer : kv_layers_) offsets.push_back(layout.take(layer->block_stride_bytes * limits_.num_blocks));
  kv_arena_ = Arena(layout.total_bytes());
  for (size_t i = 0; i < kv_layers_.size(); ++i) kv_layers_[i]->base = kv_arena_.data() + offsets[i];
}

void Executor::place_scratch() {
  Layout layout;
  std::vector<int64_t> offsets;
  for (const auto& buffer : floats_) offsets.push_back(layout.take(buffer->size_bytes()));
  for (const auto& buffer : quants_) offsets.push_back(layout.take(buffer->size_bytes()));
  const int64_t partials = layout.take(partial_bytes());
  const int64_t lanes = layout.take(limits_.num_threads * lane_bytes());
  scratch_arena_ = Arena(layout.total_bytes());
  uint8_t* base = scratch_arena_.data();
  for (size_t i = 0; i < floats_.size(); ++i) floats_[i]->data = reinterpret_cast<float*>(base + offsets[i]);
  for (size_t i = 0; i < quants_.size(); ++i) quants_[i]->place(base + offsets[floats_.size() + i]);
  for (const auto& schedule : schedules_) schedule->place(reinterpret_cast<float*>(base + partials));
  make_lanes(base + lanes);
}

void Executor::make_lanes(uint8_t* memory) {
  for (int i = 0; i < limits_.num_threads; ++i) {
    uint8_t* own = memory + i * lane_bytes();
    lanes_.push_back({i, own, reinterpret_cast<float*>(own + kLinearScratchBytes),
                      reinterpret_cast<float*>(own + kLinearScratchBytes + attention_bytes())});
  }
}

std::vector<BlockRange> Executor::pack(int id, const uint8_t* rows, int part, int num_parts) {
  if (pool_ == nullptr) throw std::invalid_argument("pack comes after commit");
  Weight& weight = at(weights_, id, "weight");
  int& next_part = next_part_[static_cast<size_t>(id)];
  if (num_parts < 1 || part < 0 || part >= num_parts || (part != 0 && part != next_part)) {
    throw std::invalid_argument("part " + std::to_string(part) + " of " + std::to_string(num_parts) + " is not the next to pack");
  }
  PackTask task{&weight, rows, part_of_homes(weight.home, part, num_parts)};
  pool_->run(pack_share, &task);
  next_part = part + 1;
  is_packed_[static_cast<size_t>(id)] = next_part == num_parts;
  return task.blocks;
}

void Executor::step(const StepInput& input) {
  if (pool_ == nullptr || std::find(is_packed_.begin(), is_packed_.end(), false) != is_packed_.end()) {
    throw std::invalid_argument("step comes after commit and after all weights are packed");
  }
  const Busy busy(&is_stepping_);
  check_step(input, {limits_.max_tokens, limits_.max_context, limits_.num_blocks, limits_.vocab_size});
  step_.input = input;
  for (int64_t seq = 0; seq < input.num_seqs; ++seq) {
    const auto first = step_.row_seqs.begin();
    std::fill(first + input.seq_starts[seq], first + input.seq_starts[seq + 1], static_cast<int32_t>(seq));
  }
  for (const auto& schedule : schedules_) schedule->forget();
  for (const auto& phase : phases_) phase->prepare(step_);
  for (size_t i = 0; i < phases_.size(); ++i) {
    is_serial_[i] = phases_[i]->is_serial(step_);
    if (!is_serial_[i]) queues_[i]->open(phases_[i]->homes(step_));
  }
  first_gate_ = gate_.value.load();
  mark_s_ = traces_ ? now_s() : 0.0;
  run_serial(0, end_of_serial(0));
  pool_->run(&Executor::run_phases, this);
}

size_t Executor::end_of_serial(size_t first) const {
  while (first < phases_.size() && is_serial_[first]) ++first;
  return first;
}

void Executor::run_serial(size_t begin, size_t end) {
  const Lane alone{0, nullptr, nullptr, nullptr};   // serial phases use no scratch
  for (size_t i = begin; i < end; ++i) {
    for (int64_t chunk = 0; chunk < phases_[i]->homes(step_).back(); ++chunk) phases_[i]->run_chunk(step_, alone, chunk);
    mark(i);
  }
}

void Executor::mark(size_t phase) {
  if (!traces_) return;
  const double end_s = now_s();
  phase_s_[phase] += end_s - mark_s_;
  mark_s_ = end_s;
}

int64_t Executor::run_chunks(size_t phase, const Lane& lane) {
  int64_t num_done = 0;
  for (int64_t chunk = queues_[phase]->take(lane.index); chunk >= 0; chunk = queues_[phase]->take(lane.index)) {
    phases_[phase]->run_chunk(step_, lane, chunk);
    ++num_done;
  }
  return num_done;
}

void Executor::run_phases(void* context, Worker& worker) { static_cast<Executor*>(context)->run_lane(worker); }

// Not a barrier: a phase is over when its chunks are done, whether or not every thread has come. A thread that was off its core finds
// the gate ahead of it and passes through to where the others are.
void Executor::run_lane(Worker& worker) {
  const Lane& lane = lanes_[static_cast<size_t>(worker.index)];
  uint32_t gate = first_gate_;
  for (size_t i = end_of_serial(0), next; i < phases_.size(); i = next, ++gate) {
    next = end_of_serial(i + 1);
    if (gate_.value.load(std::memory_order_acquire) != gate) continue;
    const int64_t num_done = run_chunks(i, lane);
    if (num_done > 0 && queues_[i]->finish(num_done)) {
      mark(i);
      run_serial(i + 1, next);
      gate_.advance();
    } else {
      worker.wait_past(gate_, gate);
    }
  }
}

void Executor::enable_trace(bool on) {
  traces_ = on;
  std::fill(phase_s_.begin(), phase_s_.end(), 0.0);
}

std::vector<PhaseTime> Executor::trace() const {
  std::vector<PhaseTime> times;
  for (size_t i = 0; i < phases_.size(); ++i) times.push_back({phases_[i]->name, phase_s_.empty() ? 0.0 : phase_s_[i]});
  return times;
}

}  // namespace roofline
