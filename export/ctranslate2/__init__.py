"""Export to CTranslate2, and its client."""
