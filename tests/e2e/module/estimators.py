"""cirron.wrap with scikit-learn, on the fake stack: run like surface.py, by interpreters that have scikit-learn."""
import copy
import inspect
import pickle
import unittest

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

import cirron as ci
from surface import Spans, Test

X = np.random.RandomState(0).randn(60, 4)
y = (X[:, 0] + X[:, 1] > 0).astype(int)


def spans():
    """[PARENT>]METHOD CLASS of each span, in order."""
    got = Spans()
    assert all(s["closed"] for s in got.spans)
    above = {s["id"]: s["name"] + ">" for s in got.spans}
    return [above.get(s["parent"], "") + s["name"] + " " + s["attrs"]["estimator"] for s in got.spans]


class Sklearn(Test):
    def test_one(self):
        e = ci.wrap(LogisticRegression(max_iter=200))
        self.assertIs(e.fit(X, y), e)
        self.assertTrue(isinstance(e, LogisticRegression) and isinstance(e, BaseEstimator) and is_classifier(e))
        check_is_fitted(e)
        plain = LogisticRegression(max_iter=200).fit(X, y)
        self.assertTrue((e.predict(X) == plain.predict(X)).all() and (e.coef_ == plain.coef_).all())
        self.assertEqual((repr(e), e.get_params(), e.score(X, y)), (repr(plain), plain.get_params(), plain.score(X, y)))
        self.assertEqual((type(e._repr_html_()), inspect.signature(e.fit)), (str, inspect.signature(plain.fit)))
        e.predict_proba(X), e.predict_log_proba(X), e.decision_function(X)
        self.assertIs(e.densify(), e)
        self.assertEqual(spans(), [n + " LogisticRegression" for n in ("fit", "predict", "score", "predict_proba", "predict_log_proba",
                                                                       "decision_function", "densify")])
        with self.assertRaises(ValueError):
            e.predict("x")
        self.assertEqual(Spans().spans[0]["error"], "ValueError")

    def test_tags(self):
        for inner in (LogisticRegression(), StandardScaler(), make_pipeline(StandardScaler(), LogisticRegression())):
            e = ci.wrap(copy.deepcopy(inner))
            self.assertEqual(getattr(e, "_estimator_type", None), getattr(inner, "_estimator_type", None))
            try:
                from sklearn.utils import get_tags
                self.assertEqual(get_tags(e), get_tags(inner))
            except ImportError:
                self.assertEqual(e._get_tags(), inner._get_tags())

    def test_clone(self):
        e = ci.wrap(LogisticRegression(C=3)).fit(X, y)
        made = clone(e)
        self.assertTrue(isinstance(made, ci.WrappedEstimator) and made.C == 3 and not hasattr(made, "coef_"))
        search = clone(GridSearchCV(e, {"C": [1]}))
        self.assertTrue(isinstance(search.estimator, ci.WrappedEstimator))
        self.assertIs(clone(e.__wrapped__).__class__, LogisticRegression)

    def test_pickle(self):
        for e in (ci.wrap(LogisticRegression()).fit(X, y), ci.wrap(RandomForestClassifier(3)).fit(X, y)):
            self.assertEqual(pickle.dumps(e), pickle.dumps(e.__wrapped__))
        pipe = ci.wrap(make_pipeline(StandardScaler(), LogisticRegression())).fit(X, y)
        self.assertNotIn(b"cirron", pickle.dumps(pipe))
        again = pickle.loads(pickle.dumps(pipe))
        self.assertEqual([type(again), type(again[0]), type(again[1])], [Pipeline, StandardScaler, LogisticRegression])
        self.assertTrue((again.predict(X) == pipe.predict(X)).all())

    def test_search(self):
        search = GridSearchCV(ci.wrap(LogisticRegression()), {"C": [0.1, 1]}, cv=2).fit(X, y)
        self.assertEqual(spans(), ["fit LogisticRegression", "score LogisticRegression"] * 4 + ["fit LogisticRegression"])
        self.assertIsInstance(search.best_estimator_, LogisticRegression)
        search = ci.wrap(GridSearchCV(LogisticRegression(), {"C": [0.1, 1]}, cv=2)).fit(X, y)
        search.predict(X)
        self.assertEqual((spans(), search.best_params_["C"] in (0.1, 1)), (["fit GridSearchCV", "predict GridSearchCV"], True))

    def test_cross_validation(self):
        plain = cross_val_score(LogisticRegression(), X, y, cv=2)
        self.assertTrue((cross_val_score(ci.wrap(LogisticRegression()), X, y, cv=2) == plain).all())
        self.assertEqual(spans(), ["fit LogisticRegression", "score LogisticRegression"] * 2)
        cross_val_predict(ci.wrap(LogisticRegression()), X, y, cv=2, method="predict_proba")
        self.assertEqual(spans(), ["fit LogisticRegression", "predict_proba LogisticRegression"] * 2)

    def test_step(self):
        pipe = make_pipeline(StandardScaler(), ci.wrap(LogisticRegression()))
        self.assertEqual([n for n, _ in pipe.steps], ["standardscaler", "logisticregression"])
        pipe.fit(X, y).predict(X)
        self.assertEqual((spans(), pipe.set_params(logisticregression__C=5)[1].C), (["fit LogisticRegression", "predict LogisticRegression"], 5))

    def test_pipeline(self):
        e = ci.wrap(Pipeline([("off", "passthrough"), ("none", None), ("scale", StandardScaler()), ("lr", LogisticRegression())]))
        self.assertIs(e.fit(X, y), e)
        self.assertEqual(spans(), ["fit Pipeline", "fit>fit_transform StandardScaler", "fit>fit LogisticRegression"])
        e.score(X, y)
        self.assertEqual(spans(), ["score Pipeline", "score>transform StandardScaler", "score>score LogisticRegression"])
        self.assertEqual((len(e), e["lr"].C, e.named_steps["lr"].C, e[:-1].steps[2][0], e.get_params()["lr__C"]), (4, 1.0, 1.0, "scale", 1.0))
        self.assertIs(e.set_params(lr__C=2), e)
        self.assertEqual(e["lr"].C, 2)
        clone(e).fit(X, y)
        self.assertEqual(spans(), ["fit Pipeline", "fit>fit_transform StandardScaler", "fit>fit LogisticRegression"])

    def test_compounds(self):
        ci.wrap(FeatureUnion([("a", StandardScaler())])).fit(X)
        self.assertEqual(spans(), ["fit FeatureUnion", "fit>fit StandardScaler"])
        ci.wrap(ColumnTransformer([("a", StandardScaler(), [0, 1]), ("b", "passthrough", [2]), ("c", "drop", [3])])).fit(X)
        self.assertEqual(spans(), ["fit ColumnTransformer", "fit>fit_transform StandardScaler"])
        e = ci.wrap(VotingClassifier([("a", LogisticRegression()), ("b", RandomForestClassifier(3))])).fit(X, y)
        self.assertEqual(spans(), ["fit VotingClassifier", "fit>fit LogisticRegression", "fit>fit RandomForestClassifier"])
        self.assertEqual(e.predict(X).shape, (60,))
        spans()
        OneVsRestClassifier(ci.wrap(LogisticRegression())).fit(X, y).predict(X)
        self.assertEqual(spans(), ["fit LogisticRegression", "decision_function LogisticRegression"])
        CalibratedClassifierCV(ci.wrap(LogisticRegression()), cv=2).fit(X, y)
        self.assertEqual(spans()[0], "fit LogisticRegression")

    def test_ensemble_of_its_own(self):
        e = ci.wrap(RandomForestClassifier(n_estimators=4, n_jobs=2)).fit(X, y)
        self.assertEqual((len(e), len(list(e)), e[0].__class__.__name__), (4, 4, "DecisionTreeClassifier"))
        e.apply(X)
        self.assertEqual(spans(), ["fit RandomForestClassifier", "apply RandomForestClassifier"])

    def test_transformer(self):
        e = ci.wrap(StandardScaler())
        self.assertIs(e.set_output(transform="default"), e)
        e.partial_fit(X)
        self.assertTrue(np.allclose(e.inverse_transform(e.fit_transform(X)), X))
        self.assertEqual(e.get_feature_names_out(list("abcd")).tolist(), list("abcd"))
        self.assertEqual(spans(), [n + " StandardScaler" for n in ("partial_fit", "fit_transform", "inverse_transform")])


if __name__ == "__main__":
    unittest.main(verbosity=1)
