#!/usr/bin/env python3
"""Writes statistics.json: what numpy and scipy compute for the inputs of statistics_test.cpp.

  pip install numpy scipy; python3 tests/engine/study/golden/make_statistics.py
"""
import json
import pathlib

import numpy
import scipy
from scipy import stats

random = numpy.random.default_rng(22)


def spread(values):
    values = numpy.array(values)
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    low, high = values.mean() - half, values.mean() + half
    return {"values": values.tolist(), "mean": values.mean(), "deviation": values.std(ddof=1), "low": low, "high": high}


def line(x, y):
    fit = stats.linregress(x, y)
    places = numpy.linspace(x.min() - 1, x.max() + 1, 7)
    design = numpy.stack([numpy.ones_like(x), x - x.mean()], axis=1)  # the band from the coefficients' covariance
    errors = y - (fit.intercept + fit.slope * x)
    covariance = numpy.linalg.inv(design.T @ design) * (errors @ errors) / (len(x) - 2)
    rows = numpy.stack([numpy.ones_like(places), places - x.mean()], axis=1)
    half = stats.t.ppf(0.975, len(x) - 2) * numpy.sqrt(numpy.einsum("ij,jk,ik->i", rows, covariance, rows))
    return {"x": x.tolist(), "y": y.tolist(), "slope": fit.slope, "intercept": fit.intercept,
            "correlation": stats.pearsonr(x, y).statistic, "numpy_correlation": numpy.corrcoef(x, y)[0, 1],
            "places": places.tolist(), "half_band": half.tolist()}


def front(points):
    beaten = [any((q <= p).all() and (q < p).any() for q in points) for p in points]
    order = sorted((i for i in range(len(points)) if not beaten[i]), key=lambda i: (tuple(points[i]), i))
    return {"points": points.tolist(), "front": order}


quantiles = [[p, d, stats.t.ppf(p, d)] for d in (1, 2, 3, 4, 7, 19, 29, 120, 10_000, 2.5)
             for p in (0.001, 0.025, 0.4, 0.5, 0.75, 0.95, 0.975, 0.9995)]
batches = numpy.array([32.0, 128, 256, 512, 1024] * 4)
golden = {
    "made with": {"numpy": numpy.__version__, "scipy": scipy.__version__},
    "quantiles": quantiles,
    "spreads": [spread([0.912, 0.921, 0.905]), spread([3.0, 3.0]), spread([1e9 + 1, 1e9 + 2, 1e9 + 4]),
                spread(random.normal(40, 3, 30)), spread([-1e-7, 2e-7, 5e-7, 0.0])],
    "lines": [line(batches, 0.93 - 2e-5 * batches + random.normal(0, 0.004, 20)),
              line(numpy.arange(3.0), numpy.array([1.0, 3.0, 2.0])),
              line(random.uniform(-5, 5, 50), random.uniform(-1, 1, 50)),
              line(1e6 + numpy.arange(8.0), numpy.arange(8.0) ** 2)],
    "fronts": [front(random.integers(0, 12, (40, 2)).astype(float)), front(random.uniform(0, 1, (25, 2))),
               front(numpy.array([[1.0, 1], [1, 1], [2, 0], [2, 0.5], [3, 0]])), front(numpy.array([[5.0, 5.0]]))],
}
path = pathlib.Path(__file__).with_name("statistics.json")
path.write_text(json.dumps(golden, indent=1) + "\n")
print("wrote", path)
