"""Where a judge's answers come from: models here and elsewhere, their order, their budget."""
