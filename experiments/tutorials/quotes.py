"""What the tutorials write, word for word: an excerpt for each claim, with line ends and indents as single spaces.

[…] stands for what is left out.
"""

from collections.abc import Mapping

_ONE_HOT = "**No learning:** Fixed representation that can't capture relationships"
_MORE = "We need MORE dimensions (not fewer) to give the model space to learn relationships"
_WITHOUT = "Without positional encoding: The model cannot distinguish `First(1,6,2)` from `First(6,2,1)`."
_WEIGHT = "The positional encoding is significant but doesn't dominate."
_ANY_LENGTH = "**Unbounded:** Works for any sequence length (even longer than training)"
_TABLE = "Cannot generalize beyond max_seq_len"
_ROTARY = "providing superior extrapolation to longer contexts."
_ALIBI = "eliminating positional embeddings entirely while enabling length extrapolation."

QUOTES: Mapping[str, str] = {
    "0.1": "After tokenization, we have: `[15, 17, 3, 19, 8, 19, 4, 18]`",
    "0.2": "Notice that token 19 (comma) appears twice and gets the **exact same embedding** both times.",
    "0.3": "This is dimensional **expansion**: 20 → 64",
    "0.4": "| LLaMA 3 | 128,256 | 4,096 | **Reduction** (128K → 4K) | "
    "| DeepSeek-V3 | 128,000 | 7,168 | **Reduction** (128K → 7K) |",
    "0.5": "One-hot (128K dims): Contains only log₂(128K) ≈ 17 bits of information […] "
    "Even with fewer dimensions, we gain far more representational power",
    "0.6": _ONE_HOT,
    "0.6b": _ONE_HOT,
    "0.7": _MORE,
    "0.7b": _MORE,
    "0.8": "E[i, j] ~ Uniform(-√(1/d_model), √(1/d_model)) For d_model = 64: E[i, j] ~ Uniform(-0.125, 0.125)",
    "0.9": "- Mean ≈ 0 - Standard deviation ≈ 0.15 - Range: [-0.3, 0.3]",
    "0.10": "E[t, :] ← E[t, :] - learning_rate × ∂Loss/∂E[t, :]",
    "0.11": "Digits (0-9) cluster together",
    "0.11b": 'embedding("6") ≈ embedding("7") # Both digits',
    "0.11c": "Operations (Max, Min) cluster together",
    "0.11d": "Learn task-specific features (e.g., which numbers are larger)",
    "0.12": "Syntax tokens ( ) , form another cluster",
    "0.13": '"Max" and "Min" become similar vectors',
    "0.14": "**After 50 epochs (Converged):** - Mean ≈ 0 - Standard deviation ≈ 0.8",
    "0.14b": "- Standard deviation ≈ 0.8 - Range: [-2.5, 2.5]",
    "0.14c": "**After 50 epochs (Converged):** - Mean ≈ 0",
    "0.15": "The range expands because the model learns to use the full representational capacity.",
    "0.16": "- GPT-2: 768 dimensions - GPT-3: 12,288 dimensions - But they also have vocabularies of 50,000+ tokens",
    "0.17": "This operation is **invariant to the order** of inputs. "
    "If we shuffle the sequence, we get the same result (just shuffled).",
    "0.18": _WITHOUT,
    "0.18b": _WITHOUT,
    "0.19": 'Imagine each position as a unique "fingerprint":',
    "0.20": "Sinusoidal encodings generalize to arbitrary sequence lengths without additional parameters",
    "0.21": "Maintain consistent distances (position i and i+k should have similar patterns)",
    "0.22": _WEIGHT,
    "0.22b": _WEIGHT,
    "0.23": "i = dimension index (0, 1, 2, ..., 31)",
    "0.24": "i = 1: 10000^(2/64) ≈ 1.17 i = 2: 10000^(4/64) ≈ 1.37 i = 10: 10000^(20/64) ≈ 3.98 "
    "i = 31: 10000^(62/64) ≈ 6812",
    "0.25": "PE(1, 2) = sin(1 / 1.17) = sin(0.855) ≈ 0.755 PE(1, 3) = cos(1 / 1.17) = cos(0.855) ≈ 0.656",
    "0.26": "PE(4, 2) = sin(4 / 1.17) = sin(3.42) ≈ -0.266 PE(4, 3) = cos(4 / 1.17) = cos(3.42) ≈ -0.964",
    "0.27": "- Position 1: [0.0001, 1.0] - Position 2: [0.0003, 0.9999] - Position 3: [0.0004, 0.9999] "
    "- Position 4: [0.0006, 0.9999]",
    "0.28": "Final embedding: [-0.87, -0.59, -0.29, ..., 1.09]",
    "0.29": "PE(pos + k) can be computed as a linear combination of PE(pos)",
    "0.29b": "This allows the model to learn to attend to relative positions",
    "0.30": "**Smooth:** Changes gradually between adjacent positions 5. **Bounded:** All values in [-1, 1]",
    "0.31": _ANY_LENGTH,
    "0.31b": _ANY_LENGTH,
    "0.32": _TABLE,
    "0.32b": _TABLE,
    "0.33": "**Combined:** ~[-1.3, 1.3] initially",
    "0.33b": "grows to ~[-3, 3] after training",
    "0.35": "**Fewer dimensions (e.g., 16):** - ✓ Faster training - ✓ Less memory - ✗ Less representational power",
    "0.36": "**More dimensions (e.g., 256):** - ✓ More representational power - ✓ Can capture subtle distinctions "
    "- ✗ Slower training - ✗ Risk of overfitting on small datasets",
    "0.37": 'This creates a "binary encoding in continuous space"',
    "0.38": "Without embeddings: The model has no representation to work with.",
    "0.39": 'the "Max" token learning to attend to all three digits',
    "0.40": "The model learns to map similar tokens to nearby points in embedding space",
    "1.1": "**`The`** and **`the`** are same words, so vectors also same.",
    "1.2": 'words with similar meanings, like "king" and "queen," will have similar embeddings.',
    "1.3": "The dimensions are typically much lower than the size of the vocabulary (e.g., 100 or 300 dimensions).",
    "1.4": 'tokens = ["The", "cat", "sat", "on", "the", "mat"]',
    "1.5": "We create an instance of `nn.Embedding`, which initializes the embedding weights randomly.",
    "1.6": "The `embeddings` tensor will have a shape of `(6, 4)`",
    "1.7": "*i* is the dimension of the embedding.",
    "1.8": "takes the sequence length (`seq_len`) and the embedding dimension (`d_model`) as inputs.",
    "1.9": "resulting in context-aware embeddings.",
    "1.10": "Traditional embeddings provide a fixed representation for each token, regardless of the context in which "
    "the token appears.",
    "1.11": "allowing the model to encode both absolute and relative position information.",
    "2.1": "Position index ranges from 0 to $T_{max} - 1$",
    "2.2": "Each dimension captures some latent property (semantics, syntax, morphology etc. - though not "
    "interpretable per se)",
    "2.3": "$i$ is the dimension index (0 to $d_{model}/2$ - 1)",
    "2.4": "resulting in strong inductive bias for modeling relative positions.",
    "2.5": "Rope applies a rotation matrix to each consecutive pair of features in Q and K vectors:",
    "2.6": r"After rotation, $q_m^Tk_n = q^TR_m^TR_nk = q^TR_{m-n}k$ where $R_{\theta}$ is the rotation matrix.",
    "2.6b": "the dot product naturally encodes relative position $m - n$ through the rotation difference",
    "2.7": "RoPE directly modifies attention scores to encode relative positions through rotational transformations",
    "2.8": _ROTARY,
    "2.8b": _ROTARY,
    "2.9": r"softmax(q_iK^T + m\cdot[-(i-1),...,-2,-1,0])",
    "2.10": "For $n$ attention heads, slopes form a geometric sequence at $2^{-8/n}$ with ratio $2^{-8/n}$.",
    "2.11": r"(e.g., $-\frac{1}{2^k}$ for head $k$) […] "
    r"16 heads: $\{\frac{1}{2^1}, \frac{1}{2^2}, ..., \frac{1}{2^{16}}\}$",
    "2.12": _ALIBI,
    "2.12b": _ALIBI,
    "2.13": "Good embeddings -> easier pattern discovery -> faster convergence",
    "3.1": "For the same word, the word embedding is always the same, but the position embedding changes",
    "3.2": "Without positional information, the Transformer would treat both sentences identically",
    "3.3": r"**For even positions** (i = 0, 2, 4, ...): $$PE_{(pos, i)} = \sin\left(\frac{pos}{10000^{2i/d_{model}}}"
    r"\right)$$",
    "3.4": "Position 0 → [0.00, 1.00, ..., 0.01] (512-d) Position 1 → [0.84, 0.54, ..., 0.02] (512-d)",
    "3.5": "Token 0: [0.23, 0.55, ..., 0.13] (embedding + position) Token 1: [1.73, 0.88, ..., 0.47]",
    "3.6": "sin and cos always stay between -1 and 1, preventing the position encodings from "
    "dominating the word embeddings",
    "3.7": "The values in the position encoding vector are calculated only once and reused for every sentence",
    "3.8": "The model can potentially handle sequences longer than those seen during training",
    "3.9": "A vocabulary of 50,000 words is represented in just 512 dimensions",
    "3.10": "Now this representation is ready to be processed by the attention mechanism!",
    "3.11": '"cat" and "dog" would be closer than "cat" and "car"',
    "4.1": "# Shape: (batch_size, sequence_length, embedding_dim) = (2, 3, 4)",
    "4.2": "= [0.47, 0.78, -0.07, 0.65] # ≈ queen",
    "4.3": "cosine_sim(cat, dog) = 0.998 # Very similar! cosine_sim(cat, car) = 0.543 # Less similar",
    "4.4": "**Cosine Similarity** measures how similar two embeddings are:",
    "4.5": "| Small | 64 | 3.2M | | Educational (this repo) | 128 | 6.4M | | GPT-2 Small | 768 | 38.4M | "
    "| GPT-2 Large | 1280 | 64M | | GPT-3 | 12,288 | 614M |",
    "4.6": "Initialize embedding table with Xavier/Glorot initialization # This helps maintain variance across layers",
    "4.7": 'print(f"Cosine similarity (before training): {cosine_similarity(emb1, emb2):.3f}")',
    "4.8": 'The gradient for token 42 ("the") is the SUM of gradients from both position 0 and position 3.',
    "4.9": "# Update only the embedding for token 156",
    "4.10": "With weight tying: W = E^T Benefits: - Fewer parameters (significant for large vocabs)",
    "4.11": '"cat sat" and "sat cat" would have identical embeddings (just in different order).',
    "4.12": "king - man + woman ≈ queen",
    "4.13": "a neural network can't learn from raw integers",
    "4.14": "**Semantic**: Similar words naturally cluster together in the vector space",
    "4.15": '`king - man` captures the concept of "royalty"',
    "4.16": "| May underfit | May overfit (on small data) |",
}
"""By id of the claim."""
