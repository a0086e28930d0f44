#pragma once
// Keys as other frameworks' users know them (PyTorch, transformers, nanoGPT), and what they are
// here.

#include <string_view>

namespace starling {

struct Synonym {
  std::string_view theirs, ours;  // `ours` ends a sentence
};
inline constexpr Synonym kSynonyms[] = {
    {"batch_size", "a step is `micro_batches` times `sequences`, both in [job]"},
    {"global_batch_size", "a step is `micro_batches` times `sequences`, both in [job]"},
    {"gradient_accumulation_steps", "a step is `micro_batches` times `sequences`, both in [job]"},
    {"micro_batch_size", "here it is `sequences` in [job]"},
    {"max_steps", "here it is `steps` in [job]"},
    {"max_iters", "here it is `steps` in [job]"},
    {"num_steps", "here it is `steps` in [job]"},
    {"epochs", "here it is `steps` in [job], which `starling check` shows in passes over the data"},
    {"lr", "here it is `peak_rate` in [optimizer]"},
    {"learning_rate", "here it is `peak_rate` in [optimizer]"},
    {"max_lr", "here it is `peak_rate` in [optimizer]"},
    {"min_lr", "here it is `floor` in [optimizer], a fraction of peak_rate"},
    {"warmup", "here it is `warmup_steps` in [optimizer]"},
    {"warmup_iters", "here it is `warmup_steps` in [optimizer]"},
    {"lr_decay_iters", "here it is `schedule_steps` in [optimizer]"},
    {"scheduler", "here it is `schedule` in [optimizer]"},
    {"lr_scheduler", "here it is `schedule` in [optimizer]"},
    {"lr_scheduler_type", "here it is `schedule` in [optimizer]"},
    {"step_size", "here it is `step_every` in [optimizer]"},
    {"gamma", "here it is `step_factor` in [optimizer]"},
    {"param_groups", "here they are `groups` in [optimizer]"},
    {"betas", "here they are `beta1` and `beta2` in [optimizer]"},
    {"eps", "here it is `epsilon` in [optimizer]"},
    {"grad_clip", "here it is `clip` in [optimizer]"},
    {"max_grad_norm", "here it is `clip` in [optimizer]"},
    {"n_layer", "here it is `layers` in [model]"},
    {"num_layers", "here it is `layers` in [model]"},
    {"n_head", "here it is `heads` in [model]"},
    {"num_heads", "here it is `heads` in [model]"},
    {"n_embd", "here it is `width` in [model]"},
    {"d_model", "here it is `width` in [model]"},
    {"hidden_size", "here it is `width` in [model]"},
    {"block_size", "here it is `context` in [model]"},
    {"seq_len", "here it is `context` in [model]"},
    {"max_seq_len", "here it is `context` in [model]"},
    {"n_positions", "here it is `context` in [model]"},
    {"vocab_size", "here it is `vocabulary` in [model]"},
    {"dropout", "there is no dropout"},
    {"lora_dropout", "there is no dropout"},
    {"r", "here it is `rank` in [lora]"},
    {"lora_r", "here it is `rank` in [lora]"},
    {"lora_rank", "here it is `rank` in [lora]"},
    {"lora_alpha", "here it is `alpha` in [lora]"},
    {"target_modules", "here they are `targets` in [lora]"},
    {"lora", "adapters are a section of their own, [lora]"},
    {"use_rslora", "adapters count alpha / rank times"},
    {"peft", "adapters are section [lora]"},
    {"adapter", "adapters are section [lora]"},
    {"gpt2", "GPT-2 is kind = \"gpt\""},
    {"mistral", "Mistral is kind = \"llama\" with `window`"},
    {"qwen2", "Qwen2 is kind = \"llama\" with `query_key_value_bias`"},
    {"qwen3", "Qwen3 is kind = \"llama\" with `query_key_norm`"},
    {"num_key_value_heads", "here it is `key_value_heads` in [model]"},
    {"head_dim", "here it is `head_width` in [model]"},
    {"intermediate_size", "here it is `feed_forward` in [model]"},
    {"sliding_window", "here it is `window` in [model]"},
    {"rms_norm_eps", "here it is `norm_epsilon` in [model]"},
    {"tie_word_embeddings", "here it is `tied_embeddings` in [model]"},
    {"local_steps", "here it is `steps` in [local]"},
    {"outer", "the optimizer of steps that are made of local ones is section [optimizer]"},
    {"grid_bits", "here it is `grid_bits` in [numbers]"},
    {"validation", "here it is the section [evaluate]"},
    {"dataset", "here it is `path` in [data]"},
    {"data_path", "here it is `path` in [data]"},
    {"save_every", "here it is `every` in [checkpoint]"},
    {"save_steps", "here it is `every` in [checkpoint]"},
    {"save_total_limit", "here it is `keep` in [checkpoint]"},
};

// What is said of a key of that name; empty: no other framework has it.
inline std::string_view meaning_of(std::string_view key) {
  for (const Synonym& s : kSynonyms)
    if (s.theirs == key) return s.ours;
  return {};
}

}  // namespace starling
