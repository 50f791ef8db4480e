"""Batches, class weights and mixtures of tasks for fine-tuning."""
