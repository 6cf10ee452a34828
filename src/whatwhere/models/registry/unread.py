"""Model types that are not read, each with its reason: what their code computes that no description states."""

from collections.abc import Mapping

_SOUND = "its encoder takes sound, which the probe cannot give it: what its decoder computes was not verified"

UNLIKE: Mapping[str, str] = {
    **dict.fromkeys(
        ("cohere_asr", "moonshine", "pop2piano", "seamless_m4t", "seamless_m4t_v2", "speech_to_text"), _SOUND
    ),
    "canary_decoder": "its sinusoids are divided by the root of the number of features",
    "dia_encoder": "the probe cannot run it, for its decoder writes nine sounds at once: it was not verified",
    "ernie4_5_vl_moe_text": (
        "height and width take turns in all pairs but the last, which time has: no scheme assigns axes so"
    ),
    "fnet": "it has no attention, but a Fourier transform over all tokens",
    "fsmt": "its two vocabularies have token tables of their own, and its fixed positions are kept as a parameter",
    "funnel": "its layers shorten the text by pooling, so that positions of later layers are those of groups of tokens",
    "hunyuan_vl_text": (
        "both features of a pair have coordinates of their own in pictures, which is no rotation: its code splits "
        "doubled frequencies into axes"
    ),
    "idefics": "it runs on pictures only, which the probe cannot give it: what it computes was not verified",
    "kyutai_speech_to_text": (
        "its token table has rows of many codebooks besides those of text, and adds a vector of each at every position"
    ),
    "molmo2_text": "its token table has additional_vocab_size rows besides, which its output projection lacks",
    "moonshine_streaming": "positions of its decoder are added to the encoder's outputs, to which no door leads",
    "neomme": (
        "windows of two sizes take turns (per_layer_config), and its two coordinates take turns in pairs of frequencies"
    ),
    "pegasus_x": "its encoder attends within staggered blocks and to global tokens: its decoder was not verified alone",
    "perceiver": "its layers attend among latents, which have no positions of tokens",
    "pix2struct_text_model": "it has T5's biases under keys of its own: reading and writing them was not verified",
    "pi0": "it has two texts, of which one is a plan of movements, and no vocabulary of its own",
    "speecht5": "text and sound enter by encoders and decoders that are exchanged by task, which no key names",
    "t5gemma2": (
        "its decoder attends to itself and to its encoder in one softmax, and windows of its encoder reach one token "
        "further to the right"
    ),
    "udop": "its encoder takes places on a page, which the probe cannot give it: what it computes was not verified",
    "unlimited_ocr_text": (
        "its windows move over the tokens that it writes, and keep the whole prompt: no key says what a prompt is"
    ),
    "voxtral_realtime_text": "it adds to each layer what a time makes of it, without which the probe cannot run it",
    "blt": "its bytes are grouped into patches, and it is four Transformers with a configuration of their own each",
    "cpmant": "learned vectors come before each text, and its bias depends on the segments of both",
    "deepseek_v4": "beside a window it attends to keys made of groups of tokens, and rotates values, and outputs back",
    "inkling2_text": "each query mixes learned profiles of the distance (Inkling), which no description has",
    "inkling_text": "each query mixes learned profiles of the distance (Inkling), which no description has",
    "prophetnet": "the bias of its decoder is a linear map of hidden states, chosen by T5's buckets of the distance",
    "reformer": "its position table joins a table of rows and one of columns, and a hash of queries selects the keys",
    "glm5_next_text": (
        "most layers keep a state in place of attention, and an indexer selects keys in the others: "
        "its configuration was not verified"
    ),
    "mistral4": (
        "a query temperature multiplies the rotated features of a head and the others, which latent attention keeps "
        "apart: a map of queries and keys has the rotated ones alone"
    ),
    "mistral_large4_text": (
        "a query temperature multiplies heads that join rotated and latent features, and frequencies, by layer, are "
        "weights: its configuration was not verified"
    ),
    "step3p5": "its layers differ in heads, thetas and rotated share: its configuration was not verified",
}
"""Model types that are not read, and cannot be read as others either -> what they compute that no scheme here does, or
that none of their keys shows, or that was not verified."""
