// The executor: one model's lowered step on one pool of threads. It is built by declaring buffers, weights and phases (Python's lowering
// does that), then `commit` gives everything memory, then `pack` fills the weights, then `step` runs the whole phase list in one call.
//
// Declarations return ids and refuse ids, widths and sizes that do not fit with std::invalid_argument, so that a mistake in a lowering
// is an error when the model is loaded and never a stray write in a step.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "executor/attention_phase.h"
#include "executor/chunk_queue.h"
#include "executor/moe_phase.h"
#include "runtime/thread_pool.h"

namespace roofline {

struct ExecutorLimits {
  int num_threads;
  Isa isa;
  KvType kv_type;
  int64_t max_tokens;      // rows in a step
  int64_t max_context;     // tokens of a sequence
  int64_t num_blocks;      // of the KV cache
  int64_t vocab_size;
  std::vector<int> cpus;   // that workers stay on; empty: the affinity mask
};

struct MemoryUse {
  int64_t weights_bytes, kv_bytes, scratch_bytes;
};

struct PhaseTime {
  std::string name;
  double seconds;          // since tracing was turned on
};

struct LinearSpec {
  int weight;
  int bias;                // vector id or -1
  int out;
  bool accumulate;
};

struct InputSpec {
  int floats, quantized;   // buffer ids; -1 for the one that the weights' formats do not read
};

struct NormSpec {
  int x, out, weight;
  float eps;
  int64_t num_groups, group_len;
};

struct AttentionSpec {
  int q, out, layer;
  AttentionGeometry geometry;
  float scale, soft_cap;
};

class Executor {
 public:
  explicit Executor(ExecutorLimits limits);

  // Declarations (executor_declare.cpp). Buffers have `rows_per_token` rows for every row of a step.
  int add_floats(int64_t width, int64_t rows_per_token);
  int add_quantized(int64_t width, int64_t rows_per_token);
  int add_vector(const float* values, int64_t len);
  int add_weight(const std::string& scheme, int64_t num_rows, int64_t row_len);
  int add_embedding(const std::string& scheme, const uint8_t* rows, int64_t num_rows, int64_t row_len);
  int add_rope(const float* cos, const float* sin, int64_t num_positions, int64_t half_len, RopeStyle style);
  int add_kv_layer(int64_t num_kv_heads, int64_t head_size);
  int add_moe(MoeShape shape);

  // Phases, in order (executor_phases.cpp). Row operators go to the row phase that `begin_rows` opened.
  void begin_rows(const std::string& name, RowSpace space);
  void row_embed(int embedding, int out, float scale);
  void row_gather(int x, int out);
  void row_norm(NormSpec spec);
  void row_quantize(int x, int out);
  void row_rope(int x, int rope, int64_t num_heads, int64_t head_size);
  void row_append(int layer, int k, int v);
  void row_add(int a, int b, int out);
  void row_gated_act(int gate, int up, int out, Activation act);
  void row_sigmoid_gate(int x, int gate, int out);
  void row_route(int moe, int x, int router, int scores, bool renormalize);
  void row_combine(int moe, int down, int out);
  void add_linears(const std::string& name, InputSpec input, const std::vector<LinearSpec>& items);
  void add_gated(const std::string& name, InputSpec input, int gate, int up, Activation act, InputSpec out);
  void add_attention(const std::string& name, AttentionSpec spec);
  void add_expert_gated(const std::string& name, int moe, InputSpec input, const std::vector<int>& gate, const std::vector<int>& up,
                        Activation act, InputSpec out);
  void add_expert_down(const std::string& name, int moe, InputSpec input, const std::vector<int>& down, int out);
  void add_logits(const std::string& name, InputSpec input, int weight, float scale, float soft_cap);

  MemoryUse memory() const;                            // what commit takes, in full
  void commit();                                       // memory for everything; no declarations after it
  // Fills one part of a weight, in parallel, each thread its share of its own rows; `rows` is the whole weight as stored. Parts come
  // in order, all parts of all weights before the first step. Returns the blocks that are done, so that their source can be let go.
  std::vector<BlockRange> pack(int weight, const uint8_t* rows, int part, int num_parts);
  void step(const StepInput& input);                   // throws std::invalid_argument for a batch that check_step refuses

  void enable_trace(bool on);
  std::vector<PhaseTime> trace() const;

  const KernelTable& kernels() const { return kernels_; }
  const ExecutorLimits& limits() const { return limits_; }
  ThreadPool* pool() const { return pool_.get(); }     // for work between steps (sampling); null before commit
  const Weight& weight(int id) const { return at(weights_, id, "weight"); }

 private:
  template <class T>
  T& at(const std::vector<std::unique_ptr<T>>& items, int id, const char* what) const {
    if (id < 0 || id >= static_cast<int>(items.size())) refuse_id(what, id, items.size());
    return *items[static_cast<size_t>(id)];
  }
  [[noreturn]] static void refuse_id(const char* what, int id, size_t count);
  void require_open() const;
  FloatBuffer& floats(int id) const { return at(floats_, id, "float buffer"); }
  QuantBuffer& quants(int id) const { return at(quants_, id, "quantized buffer"); }
  FloatBuffer& floats(int id, int64_t width) const;
  QuantBuffer& quants(int id, int64_t width) const;
  const float* vector(int id, int64_t len) const;
  LinearInput linear_input(InputSpec spec, const Weight& weight) const;
  GatedOutput gated_output(InputSpec spec, int64_t width) const;
  GatedColumns gated_columns(InputSpec input, const Weight& gate, const Weight& up, Activation act, InputSpec out) const;
  AttentionSchedule* schedule(AttentionGeometry geometry);
  void add_row_op(std::unique_ptr<RowOp> op);

  int64_t lane_bytes() const;
  int64_t attention_bytes() const;
  int64_t partial_bytes() const;
  void place_weights();
  void place_kv();
  void place_scratch();
  void make_lanes(uint8_t* memory);
  static void run_phases(void* context, Worker& worker);
  void run_lane(Worker& worker);
  size_t end_of_serial(size_t first) const;
  void run_serial(size_t begin, size_t end);
  int64_t run_chunks(size_t phase, const Lane& lane);
  void mark(size_t phase);

  ExecutorLimits limits_;
  KernelTable kernels_;
  std::unique_ptr<ThreadPool> pool_;                   // made by commit: an estimate needs no threads
  std::vector<std::unique_ptr<FloatBuffer>> floats_;
  std::vector<std::unique_ptr<QuantBuffer>> quants_;
  std::vector<std::unique_ptr<std::vector<float>>> vectors_;
  std::vector<std::unique_ptr<Weight>> weights_;
  std::vector<std::unique_ptr<EmbeddingSource>> embeddings_;
  std::vector<std::unique_ptr<RopeTable>> ropes_;
  std::vector<std::unique_ptr<KvCache>> kv_layers_;
  std::vector<std::unique_ptr<MoeState>> moes_;
  std::vector<std::unique_ptr<AttentionSchedule>> schedules_;
  std::vector<std::unique_ptr<Phase>> phases_;
  RowPhase* open_rows_ = nullptr;                      // the last phase, while it takes row operators
  bool has_logits_ = false;

  Arena weight_arena_, kv_arena_, scratch_arena_;
  std::vector<Lane> lanes_;
  std::vector<bool> is_packed_;
  std::vector<int> next_part_;                         // of each weight, while it is packed in parts
  Step step_;
  std::vector<bool> is_serial_;                        // of each phase, in this step
  std::vector<std::unique_ptr<ChunkQueue>> queues_;    // of each phase
  Gate gate_;                                          // counts the split phases done, over all steps
  uint32_t first_gate_ = 0;                            // its value when this step began
  std::atomic<bool> is_stepping_{false};

  bool traces_ = false;
  std::vector<double> phase_s_;
  double mark_s_ = 0.0;                                // when the phase before ended; its last thread writes it
};

}  // namespace roofline
