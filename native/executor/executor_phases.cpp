// Phases of the executor: each checks that what it is given fits together.
#include <stdexcept>

#include "executor/executor.h"

namespace roofline {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

// A buffer that several rows a token share out (experts' slots) can't stand where one row a token is meant, and the other way round.
void require_rows(const FloatBuffer& buffer, int64_t num_rows) {
  require(buffer.num_rows == num_rows, "a buffer has another number of rows than the phase needs");
}

}  // namespace

void Executor::begin_rows(const std::string& name, RowSpace space) {
  require_open();
  auto phase = std::make_unique<RowPhase>(name, space, limits_.num_threads);
  RowPhase* rows = phase.get();
  phases_.push_back(std::move(phase));
  open_rows_ = rows;
}

void Executor::add_row_op(std::unique_ptr<RowOp> op) {
  require_open();
  require(open_rows_ != nullptr, "a row operator needs a row phase: begin_rows comes first");
  open_rows_->add(std::move(op));
}

void Executor::row_embed(int embedding, int out, float scale) {
  const EmbeddingSource& source = at(embeddings_, embedding, "embedding");
  add_row_op(std::make_unique<EmbedOp>(*kernels_.pointwise, source, floats(out, source.row_len), scale));
}

void Executor::row_gather(int x, int out) { add_row_op(std::make_unique<GatherOp>(floats(x), floats(out, floats(x).width))); }

void Executor::row_norm(NormSpec spec) {
  require(spec.num_groups > 0 && spec.group_len > 0, "a norm needs groups");
  const int64_t width = spec.num_groups * spec.group_len;
  add_row_op(std::make_unique<NormOp>(*kernels_.pointwise, floats(spec.x, width), floats(spec.out, width),
                                      vector(spec.weight, spec.group_len), spec.eps, spec.num_groups, spec.group_len));
}

void Executor::row_quantize(int x, int out) {
  add_row_op(std::make_unique<QuantizeOp>(*kernels_.pointwise, floats(x), quants(out, floats(x).width)));
}

void Executor::row_rope(int x, int rope, int64_t num_heads, int64_t head_size) {
  const RopeTable& table = at(ropes_, rope, "rope table");
  require(2 * table.half_len <= head_size, "the rotary length is longer than a head");
  add_row_op(std::make_unique<RopeOp>(*kernels_.pointwise, floats(x, num_heads * head_size), table, num_heads, head_size));
}

void Executor::row_append(int layer, int k, int v) {
  const KvCache& cache = at(kv_layers_, layer, "KV layer");
  const int64_t width = cache.num_kv_heads * cache.head_size;
  add_row_op(std::make_unique<AppendOp>(*kernels_.attention, cache, floats(k, width), floats(v, width)));
}

void Executor::row_add(int a, int b, int out) {
  const int64_t width = floats(out).width;
  add_row_op(std::make_unique<AddOp>(*kernels_.pointwise, floats(a, width), floats(b, width), floats(out)));
}

void Executor::row_gated_act(int gate, int up, int out, Activation act) {
  const int64_t width = floats(out).width;
  add_row_op(std::make_unique<GatedActOp>(*kernels_.pointwise, floats(gate, width), floats(up, width), floats(out), act));
}

void Executor::row_sigmoid_gate(int x, int gate, int out) {
  add_row_op(std::make_unique<SigmoidGateOp>(*kernels_.pointwise, floats(x, floats(out).width), floats(gate, 1), floats(out)));
}

void Executor::row_route(int moe, int x, int router, int scores, bool renormalize) {
  MoeState& state = at(moes_, moe, "MoE");
  const float* weights = vector(router, state.shape.num_experts * state.shape.width);
  add_row_op(std::make_unique<RouteOp>(*kernels_.pointwise, floats(x, state.shape.width), weights,
                                       floats(scores, state.shape.num_experts), state, renormalize));
}

void Executor::row_combine(int moe, int down, int out) {
  const MoeState& state = at(moes_, moe, "MoE");
  const FloatBuffer& rows = floats(down, state.shape.width);
  require_rows(rows, limits_.max_tokens * state.shape.top_k);
  add_row_op(std::make_unique<CombineOp>(*kernels_.pointwise, state, rows, floats(out, state.shape.width)));
}

void Executor::add_linears(const std::string& name, InputSpec input, const std::vector<LinearSpec>& specs) {
  require_open();
  require(!specs.empty(), "a linear phase needs a weight");
  LinearInput source;
  std::vector<LinearItem> items;
  for (const LinearSpec& spec : specs) {
    Weight& weight = at(weights_, spec.weight, "weight");
    const LinearInput wanted = linear_input(input, weight);
    if (wanted.floats != nullptr) source.floats = wanted.floats;
    if (wanted.quantized != nullptr) source.quantized = wanted.quantized;
    const float* bias = spec.bias < 0 ? nullptr : vector(spec.bias, weight.packed.num_rows);
    items.push_back({&weight, bias, &floats(spec.out, weight.packed.num_rows), spec.accumulate});
  }
  phases_.push_back(std::make_unique<LinearPhase>(name, *kernels_.linear, source, std::move(items), limits_.num_threads));
  open_rows_ = nullptr;
}

GatedColumns Executor::gated_columns(InputSpec input, const Weight& gate, const Weight& up, Activation act, InputSpec out) const {
  require(gate.packed.num_rows == up.packed.num_rows && gate.packed.row_len == up.packed.row_len, "gate and up have different shapes");
  GatedColumns columns{*kernels_.linear, *kernels_.pointwise, {&gate, &up}, act, linear_input(input, gate)};
  const LinearInput second = linear_input(input, up);
  if (second.floats != nullptr) columns.input.floats = second.floats;
  if (second.quantized != nullptr) columns.input.quantized = second.quantized;
  columns.out = gated_output(out, gate.packed.num_rows);
  return columns;
}

void Executor::add_gated(const std::string& name, InputSpec input, int gate, int up, Activation act, InputSpec out) {
  require_open();
  Weight &first = at(weights_, gate, "weight"), &second = at(weights_, up, "weight");
  GatedColumns columns = gated_columns(input, first, second, act, out);
  phases_.push_back(std::make_unique<GatedPhase>(name, columns, &first, &second, limits_.num_threads));
  open_rows_ = nullptr;
}

void Executor::add_attention(const std::string& name, AttentionSpec spec) {
  require_open();
  const KvCache& cache = at(kv_layers_, spec.layer, "KV layer");
  const AttentionGeometry& shape = spec.geometry;
  require(shape.num_kv_heads == cache.num_kv_heads && shape.head_size == cache.head_size, "attention does not fit its KV layer");
  require(shape.num_heads > 0 && shape.num_heads % shape.num_kv_heads == 0, "query heads must be a multiple of the KV heads");
  require(shape.window >= 0 && spec.soft_cap >= 0, "window and soft cap can't be negative");
  const int64_t width = shape.num_heads * shape.head_size;
  AttentionArgs args{};
  args.num_heads = shape.num_heads;
  args.scale = spec.scale;
  args.soft_cap = spec.soft_cap;
  args.window = shape.window;
  phases_.push_back(std::make_unique<AttentionPhase>(name, *kernels_.attention, schedule(shape), args, &cache,
                                                     &floats(spec.q, width), &floats(spec.out, width)));
  open_rows_ = nullptr;
}

void Executor::add_expert_gated(const std::string& name, int moe, InputSpec input, const std::vector<int>& gate,
                                const std::vector<int>& up, Activation act, InputSpec out) {
  require_open();
  const MoeState& state = at(moes_, moe, "MoE");
  require(static_cast<int64_t>(gate.size()) == state.shape.num_experts && gate.size() == up.size(), "wrong number of experts");
  std::vector<GatedWeights> experts;
  for (size_t e = 0; e < gate.size(); ++e) {
    const Weight &first = at(weights_, gate[e], "weight"), &second = at(weights_, up[e], "weight");
    require(first.packed.num_rows == state.shape.expert_len && first.packed.row_len == state.shape.width, "an expert has another shape");
    require(first.packed.format == at(weights_, gate[0], "weight").packed.format, "experts of one layer must have one format");
    require(second.packed.format == at(weights_, up[0], "weight").packed.format, "experts of one layer must have one format");
    gated_columns(input, first, second, act, out);     // its checks
    experts.push_back({&first, &second});
  }
  GatedColumns columns = gated_columns(input, *experts[0].gate, *experts[0].up, act, out);
  const int64_t slots = limits_.max_tokens * state.shape.top_k;
  if (columns.out.floats != nullptr) require_rows(*columns.out.floats, slots);
  require(columns.out.quantized == nullptr || columns.out.quantized->num_rows == slots, "the experts' buffer needs a row a slot");
  phases_.push_back(std::make_unique<GroupRowsPhase>(name + " (group rows)", &at(moes_, moe, "MoE")));
  phases_.push_back(std::make_unique<ExpertGatedPhase>(name, &state, columns, std::move(experts), limits_.num_threads));
  open_rows_ = nullptr;
}

void Executor::add_expert_down(const std::string& name, int moe, InputSpec input, const std::vector<int>& down, int out) {
  require_open();
  const MoeState& state = at(moes_, moe, "MoE");
  require(static_cast<int64_t>(down.size()) == state.shape.num_experts, "wrong number of experts");
  std::vector<const Weight*> experts;
  for (const int id : down) {
    const Weight& weight = at(weights_, id, "weight");
    require(weight.packed.num_rows == state.shape.width && weight.packed.row_len == state.shape.expert_len, "an expert has another shape");
    require(weight.packed.format == at(weights_, down[0], "weight").packed.format, "experts of one layer must have one format");
    experts.push_back(&weight);
  }
  const int64_t slots = limits_.max_tokens * state.shape.top_k;
  const LinearInput source = linear_input(input, *experts[0]);
  require((source.floats != nullptr ? source.floats->num_rows : source.quantized->num_rows) == slots, "the experts' buffer needs a row a slot");
  const FloatBuffer& rows = floats(out, state.shape.width);
  require_rows(rows, slots);
  phases_.push_back(std::make_unique<ExpertDownPhase>(name, &state, *kernels_.linear, source, std::move(experts), &rows, limits_.num_threads));
  open_rows_ = nullptr;
}

void Executor::add_logits(const std::string& name, InputSpec input, int weight, float scale, float soft_cap) {
  require_open();
  Weight& head = at(weights_, weight, "weight");
  require(head.packed.num_rows == limits_.vocab_size, "the head has another number of rows than the vocabulary");
  phases_.push_back(std::make_unique<LogitsPhase>(name, kernels_, linear_input(input, head), &head, scale, soft_cap, limits_.num_threads));
  open_rows_ = nullptr;
  has_logits_ = true;
}

}  // namespace roofline
