"""The causes that are looked for, one rule a file; a new file is enough to join."""

from penstock.advise.findings.finding import Finding, Gain, Rule, Setting, found, rules

__all__ = ["Finding", "Gain", "Rule", "Setting", "found", "rules"]
