"""What uses the product to learn something: papers, comparisons, calibration, benches."""
