"""Models of other libraries: their files and configurations, patches of loaded models, surgery on checkpoints."""
