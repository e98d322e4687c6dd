"""Why a model cannot be served: each reason its own exception, each message naming the culprit.

ModelLoadError
├── ModelNotFound        neither a directory, nor on the hub, nor the default model's package
├── ModelRefused         the architecture or the checkpoint cannot run on a paged cache
├── DeviceMissing        the device that was asked for is not there
├── TokenizerRefused     no tokenizer.json can be made of the tokenizer
└── ModelDoesNotFit      weights, or one request of full length, exceed the memory there is
"""


class ModelLoadError(Exception):
    """Base of everything that keeps a model from being served."""


class ModelNotFound(ModelLoadError):
    """The name leads to no checkpoint."""


class ModelRefused(ModelLoadError):
    """The model is of a kind that this worker cannot run, or cannot run right."""


class DeviceMissing(ModelLoadError):
    """This machine, or this build of torch, does not have the device."""


class TokenizerRefused(ModelLoadError):
    """The tokenizer has no form that gateways could use."""


class ModelDoesNotFit(ModelLoadError):
    """Memory is too small for the model, or for one request of full length beside it."""
