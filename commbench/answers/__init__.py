"""Answers: a folder for each question that a user asks. It computes a result, and describes it in a
document."""
