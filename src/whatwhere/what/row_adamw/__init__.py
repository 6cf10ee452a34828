"""RowAdamW: AdamW for token tables that updates only the rows of the batch, exactly."""
