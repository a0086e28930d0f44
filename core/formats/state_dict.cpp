#include "core/formats/state_dict.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/base/bytes.h"
#include "core/base/text.h"

namespace starling {
namespace {

constexpr std::size_t kValuesMax = 1u << 20;
constexpr std::size_t kTextMax = 4096;  // of a name
constexpr std::size_t kStorageNameMax = 64;
constexpr std::size_t kSizesMax = 8;

constexpr std::string_view kMakesDict = "collections.OrderedDict";
constexpr std::string_view kMakesTensor = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kMakesParameter = "torch._utils._rebuild_parameter";
constexpr std::pair<std::string_view, Dtype> kStorages[] = {
    {"torch.FloatStorage", Dtype::kF32},     {"torch.HalfStorage", Dtype::kF16},
    {"torch.BFloat16Storage", Dtype::kBf16}, {"torch.DoubleStorage", Dtype::kF64},
    {"torch.LongStorage", Dtype::kI64},      {"torch.IntStorage", Dtype::kI32},
    {"torch.ShortStorage", Dtype::kI16},     {"torch.CharStorage", Dtype::kI8},
    {"torch.ByteStorage", Dtype::kU8},       {"torch.BoolStorage", Dtype::kBool}};

std::optional<Dtype> dtype_of(std::string_view storage) {
  const auto* const row =
      std::ranges::find(kStorages, storage, &std::pair<std::string_view, Dtype>::first);
  return row == std::end(kStorages) ? std::nullopt : std::optional(row->second);
}

// Without control characters, and cut, for a message.
std::string shown(std::string_view text, std::size_t max = 64) {
  std::string out;
  for (const unsigned char c : text.substr(0, max))
    out += c < 0x20 || c == 0x7f ? '?' : static_cast<char>(c);
  return out + (text.size() > max ? "..." : "");
}

// The machine of a pickle: a stack of values, and a memo of those that come again. Values refer to one another by
// their places in one vector, as those of a hostile pickle may refer in circles.
class Unpickler {
 public:
  explicit Unpickler(std::string_view pickle)
      : in_({reinterpret_cast<const std::uint8_t*>(pickle.data()), pickle.size()}) {}

  Result<std::vector<StateDictTensor>> run() {
    for (;;) {
      const auto op = in_.get<std::uint8_t>();
      if (!in_.good()) return cut();
      if (op == '.') return finish();
      STARLING_TRY(follow(op));
      if (!in_.good()) return cut();
      if (std::max({values_.size(), memo_.size(), stack_.size(), marks_.size()}) > kValuesMax)
        return bad_input("its pickle has more than " + std::to_string(kValuesMax) + " values");
    }
  }

 private:
  using Ref = std::uint32_t;
  enum class Kind : std::uint8_t {
    kNone,
    kNumber,
    kText,
    kGlobal,
    kTuple,
    kDict,
    kStorage,
    kTensor
  };
  struct Value {
    Kind kind = Kind::kNone;
    std::int64_t number = 0;  // kTensor: in tensors_; kStorage: its elements
    std::string text;         // kGlobal: its name; kStorage: its name
    std::vector<Ref> items;   // of a dictionary keys and values in turn
    Dtype dtype = Dtype::kF32;
  };

  static Error cut() { return bad_input("its pickle was cut"); }
  static Error unlike() { return bad_input("its pickle is not that of a state_dict"); }

  void push(Value value) {
    values_.push_back(std::move(value));
    stack_.push_back(static_cast<Ref>(values_.size() - 1));
  }
  void push_number(std::int64_t number) { push({Kind::kNumber, number, {}, {}, {}}); }
  void push_text(ByteView text) { push({Kind::kText, 0, {text.begin(), text.end()}, {}, {}}); }
  // The values above the last mark, or the last `count`, which leave the stack. Errors: there are fewer.
  Result<std::vector<Ref>> take_marked() {
    if (marks_.empty()) return unlike();
    const std::size_t mark = marks_.back();
    marks_.pop_back();
    return take(stack_.size() - mark);
  }
  Result<std::vector<Ref>> take(std::size_t count) {
    const std::size_t least = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() < least + count) return unlike();
    std::vector<Ref> taken(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return taken;
  }
  Result<> push_tuple(std::size_t count) {
    STARLING_TRY(items, take(count));
    push({Kind::kTuple, 0, {}, std::move(items), {}});
    return ok();
  }
  // Puts keys and values in turn into the dictionary that is the last on the stack.
  Result<> put(const std::vector<Ref>& items) {
    if (stack_.empty() || items.size() % 2 != 0) return unlike();
    Value& dict = values_[stack_.back()];
    if (dict.kind != Kind::kDict) return unlike();
    dict.items.insert(dict.items.end(), items.begin(), items.end());
    return ok();
  }
  Result<> push_global(std::string name) {
    const bool needed =
        name == kMakesDict || name == kMakesTensor || name == kMakesParameter || dtype_of(name);
    if (!needed)
      return bad_input("its pickle names " + shown(name) +
                       ", which no state_dict of dense tensors needs; nothing of it was run");
    push({Kind::kGlobal, 0, std::move(name), {}, {}});
    return ok();
  }
  Result<> memorise(std::uint32_t place) {
    if (stack_.empty()) return unlike();
    memo_[place] = stack_.back();
    return ok();
  }
  Result<> recall(std::uint32_t place) {
    const auto it = memo_.find(place);
    if (it == memo_.end()) return unlike();
    stack_.push_back(it->second);
    return ok();
  }

  Result<> follow(std::uint8_t op);
  Result<> follow_global();
  Result<> follow_stack_global();
  Result<> follow_long();
  Result<> persistent();
  Result<> call();
  Result<> call_tensor(const std::vector<Ref>& arguments);
  Result<std::vector<StateDictTensor>> finish();
  // The numbers of a tuple. Errors: it is none, or has others than sizes.
  Result<std::vector<std::uint64_t>> sizes(Ref ref) const;

  ByteReader in_;
  std::vector<Value> values_;
  std::vector<Ref> stack_;
  std::vector<std::size_t> marks_;  // sizes of the stack
  std::map<std::uint32_t, Ref> memo_;
  // A tensor without its name, which the dictionary has; `lies_so`: its elements lie one behind the other.
  struct Made {
    StateDictTensor tensor;
    bool lies_so;
  };
  std::vector<Made> tensors_;
};

Result<> Unpickler::follow(std::uint8_t op) {
  switch (op) {
    case 0x80: {  // PROTO
      const auto version = in_.get<std::uint8_t>();
      if (version < 2 || version > 5) return unlike();
      return ok();
    }
    case 0x95:
      in_.get<std::uint64_t>();
      return ok();  // FRAME
    case '(':
      marks_.push_back(stack_.size());
      return ok();
    case ')':
      return push_tuple(0);
    case 0x85:
      return push_tuple(1);
    case 0x86:
      return push_tuple(2);
    case 0x87:
      return push_tuple(3);
    case 't': {
      STARLING_TRY(items, take_marked());
      push({Kind::kTuple, 0, {}, std::move(items), {}});
      return ok();
    }
    case '}':
      push({Kind::kDict, 0, {}, {}, {}});
      return ok();
    case 's': {
      STARLING_TRY(items, take(2));
      return put(items);
    }
    case 'u': {
      STARLING_TRY(items, take_marked());
      return put(items);
    }
    case 'N':
      push({});
      return ok();
    case 0x88:
      push_number(1);
      return ok();
    case 0x89:
      push_number(0);
      return ok();
    case 'K':
      push_number(in_.get<std::uint8_t>());
      return ok();
    case 'M':
      push_number(in_.get<std::uint16_t>());
      return ok();
    case 'J':
      push_number(in_.get<std::int32_t>());
      return ok();
    case 0x8a:
      return follow_long();
    case 'X':
      push_text(in_.get_sized());
      return ok();
    case 0x8c:
      push_text(in_.get_bytes(in_.get<std::uint8_t>()));
      return ok();
    case 'c':
      return follow_global();
    case 0x93:
      return follow_stack_global();
    case 'q':
      return memorise(in_.get<std::uint8_t>());
    case 'r':
      return memorise(in_.get<std::uint32_t>());
    case 0x94:
      return memorise(static_cast<std::uint32_t>(memo_.size()));
    case 'h':
      return recall(in_.get<std::uint8_t>());
    case 'j':
      return recall(in_.get<std::uint32_t>());
    case 'Q':
      return persistent();
    case 'R':
      return call();
    case 'b': {  // BUILD: attributes of a dictionary, as a state_dict's _metadata
      if (auto state = take(1); !state) return std::move(state).error();
      if (stack_.empty() || values_[stack_.back()].kind != Kind::kDict) return unlike();
      return ok();
    }
    default:
      return bad_input("its pickle has the instruction 0x" + hex(ByteView(&op, 1)) +
                       ", which no state_dict of tensors needs");
  }
}

Result<> Unpickler::follow_global() {
  std::string name;
  for (const char end : {'.', '\0'}) {
    for (;;) {
      const char c = static_cast<char>(in_.get<std::uint8_t>());
      if (!in_.good() || c == '\n') break;
      if (name.size() == kTextMax) return unlike();
      name += c;
    }
    if (end != '\0') name += end;
  }
  if (!in_.good()) return cut();
  return push_global(std::move(name));
}

Result<> Unpickler::follow_stack_global() {
  STARLING_TRY(names, take(2));
  const Value &module = values_[names[0]], &name = values_[names[1]];
  if (module.kind != Kind::kText || name.kind != Kind::kText) return unlike();
  return push_global(module.text + "." + name.text);
}

// LONG1: an integer of up to 8 bytes, little-endian.
Result<> Unpickler::follow_long() {
  const ByteView bytes = in_.get_bytes(in_.get<std::uint8_t>());
  if (bytes.size() > 8) return unlike();
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) number |= std::uint64_t{bytes[i]} << 8 * i;
  if (!bytes.empty() && bytes.size() < 8 && bytes.back() >= 0x80)
    number |= ~std::uint64_t{0} << 8 * bytes.size();
  push_number(static_cast<std::int64_t>(number));
  return ok();
}

// A storage: ("storage", class, name, device, elements).
Result<> Unpickler::persistent() {
  STARLING_TRY(id, take(1));
  const std::vector<Ref>& items = values_[id[0]].items;
  if (values_[id[0]].kind != Kind::kTuple || items.size() != 5) return unlike();
  const Value &word = values_[items[0]], &storage = values_[items[1]], &name = values_[items[2]],
              &elements = values_[items[4]];
  if (word.text != "storage" || storage.kind != Kind::kGlobal || name.kind != Kind::kText ||
      elements.kind != Kind::kNumber)
    return unlike();
  const auto dtype = dtype_of(storage.text);
  if (!dtype || name.text.size() > kStorageNameMax) return unlike();
  push({Kind::kStorage, elements.number, name.text, {}, *dtype});
  return ok();
}

Result<> Unpickler::call() {
  STARLING_TRY(called, take(2));
  const Value &function = values_[called[0]], &arguments = values_[called[1]];
  if (function.kind != Kind::kGlobal || arguments.kind != Kind::kTuple) return unlike();
  if (function.text == kMakesTensor) return call_tensor(arguments.items);
  if (function.text == kMakesParameter) {
    if (arguments.items.empty() || values_[arguments.items[0]].kind != Kind::kTensor)
      return unlike();
    stack_.push_back(arguments.items[0]);
    return ok();
  }
  if (function.text != kMakesDict || !arguments.items.empty()) return unlike();
  push({Kind::kDict, 0, {}, {}, {}});
  return ok();
}

Result<std::vector<std::uint64_t>> Unpickler::sizes(Ref ref) const {
  const Value& tuple = values_[ref];
  if (tuple.kind != Kind::kTuple || tuple.items.size() > kSizesMax) return unlike();
  std::vector<std::uint64_t> numbers;
  for (const Ref item : tuple.items) {
    if (values_[item].kind != Kind::kNumber || values_[item].number < 0) return unlike();
    numbers.push_back(static_cast<std::uint64_t>(values_[item].number));
  }
  return numbers;
}

// (storage, offset, size, stride, requires_grad, hooks)
Result<> Unpickler::call_tensor(const std::vector<Ref>& arguments) {
  // The seventh would say that values are to be negated or conjugated.
  if (arguments.size() < 4 || arguments.size() > 6) return unlike();
  const Value &storage = values_[arguments[0]], &offset = values_[arguments[1]];
  if (storage.kind != Kind::kStorage || offset.kind != Kind::kNumber || offset.number < 0)
    return unlike();
  STARLING_TRY(shape, sizes(arguments[2]));
  STARLING_TRY(strides, sizes(arguments[3]));
  if (strides.size() != shape.size()) return unlike();
  bool lies_so = true;
  std::uint64_t stride = 1;
  const bool empty = std::ranges::find(shape, 0u) != shape.end();
  for (std::size_t d = shape.size(); d-- > 0 && !empty;) {
    lies_so = lies_so && (shape[d] == 1 || strides[d] == stride);
    if (__builtin_mul_overflow(stride, shape[d], &stride)) return unlike();
  }
  tensors_.push_back({{"", storage.dtype, storage.text, static_cast<std::uint64_t>(offset.number),
                       std::move(shape)},
                      lies_so});
  push({Kind::kTensor, static_cast<std::int64_t>(tensors_.size() - 1), {}, {}, {}});
  return ok();
}

Result<std::vector<StateDictTensor>> Unpickler::finish() {
  if (stack_.size() != 1 || !marks_.empty() || in_.remaining() != 0) return unlike();
  const Value& dict = values_[stack_.front()];
  if (dict.kind != Kind::kDict) return unlike();
  std::vector<StateDictTensor> tensors;
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < dict.items.size(); i += 2) {
    const Value &name = values_[dict.items[i]], &value = values_[dict.items[i + 1]];
    const bool is_name = name.kind == Kind::kText && !name.text.empty() &&
                         name.text.size() <= kTextMax && shown(name.text, kTextMax) == name.text;
    if (!is_name) return bad_input("its dictionary has a key that is no name");
    if (value.kind != Kind::kTensor)
      return bad_input("its dictionary has no tensor at \"" + shown(name.text) +
                       "\", expected a state_dict: tensors by their names, and nothing else");
    const Made& made = tensors_[static_cast<std::size_t>(value.number)];
    if (!made.lies_so)
      return bad_input("the elements of tensor " + shown(name.text) +
                       " do not lie in the order of its shape; save its .contiguous()");
    if (!names.insert(name.text).second)
      return bad_input("its dictionary has the tensor " + shown(name.text) + " twice");
    tensors.push_back(made.tensor);
    tensors.back().name = name.text;
  }
  return tensors;
}

}  // namespace

Result<std::vector<StateDictTensor>> parse_state_dict(std::string_view pickle) {
  return Unpickler(pickle).run();
}

}  // namespace starling
