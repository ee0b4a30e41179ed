"""Feature tables of the digits against loops and closed forms. (scikit-image gives the same, see the module.)"""

import numpy as np
from sklearn.datasets import load_digits

from mvcl.data import _features as described


def test_hog_of_a_ramp():
    ramp = np.tile(np.arange(8.0), (1, 8, 1))  # rises to the right: every gradient points at 0 degrees
    found = described.hog(ramp).reshape(4, 9)
    np.testing.assert_allclose(found[:, 0], 0.5, rtol=1e-5)  # four equal cells with unit length in total
    np.testing.assert_array_equal(found[:, 1:], 0)
    np.testing.assert_allclose(described.hog(ramp.transpose(0, 2, 1)).reshape(4, 9)[:, 4], 0.5, rtol=1e-5)


def test_lbp_of_a_flat_image_and_a_dot():
    flat = described.lbp(np.ones((1, 8, 8))).reshape(4, 10)
    # Of a cell's 16 pixels, 9 are inside with 8 equal neighbours, 6 at an edge have 5 of 8, the corner has 3.
    np.testing.assert_allclose(flat, np.tile([0, 0, 0, 1, 0, 6, 0, 0, 9, 0], (4, 1)) / 16)
    dot = np.zeros((1, 8, 8))
    dot[0, 1, 1] = 1
    found = described.lbp(dot).reshape(4, 10)[0] * 16
    assert found[0] == 1  # the dot is above all its neighbours


def test_fourier_profiles_and_moments():
    images = load_digits().images[:20] / 16
    y, x = np.mgrid[:8, :8]
    functions = (described.fourier, described.profiles, described.moments)
    for image, f, p, m in zip(images, *(function(images) for function in functions)):
        phases = [2j * np.pi * (u * y + v * x) / 8 for u in range(8) for v in range(5)]
        waves = [np.log1p(abs(np.sum(image * np.exp(-phase)))) for phase in phases]
        np.testing.assert_allclose(f, waves, atol=1e-12)
        sums = [image[line == i].sum() for line in (y, x) for i in range(8)]
        sums += [image[line == d].sum() for line in (x - y, 7 - x - y) for d in range(-7, 8)]
        np.testing.assert_allclose(p, sums, atol=1e-12)
        mass = image.sum()
        cy, cx = (image * y).sum() / mass, (image * x).sum() / mass
        orders = [(a, t - a) for t in (2, 3, 4) for a in range(t, -1, -1)]
        central = [(image * (y - cy) ** a * (x - cx) ** b).sum() for a, b in orders]
        eta = [moment / mass ** (1 + (a + b) / 2) for moment, (a, b) in zip(central, orders)]
        np.testing.assert_allclose(m, [mass, cy, cx, *eta], rtol=1e-9, atol=1e-12)
