"""The commands that know data, as a user runs them: python3 test_data_cli.py path/to/tpgm"""

import csv
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

import test_cli
from test_models_cli import CLIP, GOLDENS, ModelsCommand, tensor

ROOT = Path(__file__).resolve().parents[2]
RESNET = GOLDENS / "torchvision-resnet-basic" / "model.pth"  # 7 classes


class DataCommand(ModelsCommand):
    @classmethod
    def setUpClass(cls):
        cls.shared = Path(tempfile.mkdtemp(prefix="tpgm-data-cli-"))
        cls.addClassCleanup(shutil.rmtree, cls.shared)
        cls.small = cls.shared / "small"
        subprocess.run([sys.executable, ROOT / "scripts" / "make_small_datasets", cls.small], check=True,
                       stdout=subprocess.DEVNULL)

    def copy(self, name):
        return Path(shutil.copytree(self.small / name, self.folder / name))

    def check_json(self, status, *arguments):
        result = test_cli.tpgm("data", "check", "--json", *arguments)
        self.assertEqual(result.returncode, status, result.stderr)
        return json.loads(result.stdout)


class Check(DataCommand):
    def test_real_layouts(self):
        imagenet = self.small / "imagenet" / "val"
        for name, parts, classes, more in (
                ("domainnet", 12, 8, ()), ("imagenet", 2, 8, ()), ("pacs", 4, 7, ()), ("office-home", 4, 8, ()),
                ("imagenetv2-matched-frequency-format-val", 1, 8, ("--class-list", imagenet)),
                ("imagenet-r", 1, 8, ("--class-list", imagenet)), ("imagenet-a", 1, 8, ("--class-list", imagenet)),
                ("sketch", 1, 8, ("--class-list", imagenet))):
            with self.subTest(name):
                report = self.check_json(0, self.small / name, *more)
                self.assertTrue(report["fine"])
                self.assertEqual((len(report["parts"]), len(report["classes"])), (parts, classes))
                self.assertIn("Every image can be read", self.run_ok("data", "check", self.small / name, *more).stdout)

    def test_counts(self):
        report = self.check_json(0, self.small / "domainnet", "--domains", "real,sketch/train")
        self.assertEqual([part["name"] for part in report["parts"]], ["real/test", "real/train", "sketch/train"])
        self.assertEqual(report["parts"][2]["per_class"], [3] * 8)
        self.assertIn("aircraft_carrier", self.run_ok("data", "check", self.small / "domainnet", "--per-class").stdout)

    def test_problems(self):
        pacs = self.copy("pacs")
        (pacs / "photo" / "dog" / "pic_001.jpg").write_bytes(b"")
        (pacs / "photo" / "dog" / "pic_002.jpg").write_text("no image")
        shutil.copy(pacs / "sketch" / "dog" / "pic_001.jpg", pacs / "cartoon" / "dog" / "again.jpg")
        shutil.copy(pacs / "sketch" / "dog" / "pic_001.jpg", pacs / "sketch" / "dog" / "again.jpg")
        report = self.check_json(1, pacs)
        self.assertEqual([Path(bad["file"]).name for bad in report["unreadable"]], ["pic_001.jpg", "pic_002.jpg"])
        self.assertEqual(sorted(twins["in_two_parts"] for twins in report["twins"]), [True, True])
        text = test_cli.tpgm("data", "check", pacs).stdout
        self.assertIn("2 images cannot be read:", text)
        self.assertIn("pic_001.jpg: it is empty", text)
        self.assertIn("occur in more than one domain or split:", text)

    def test_images_of_other_formats(self):
        pacs = self.copy("pacs")
        text = self.run_ok("data", "check", pacs).stdout
        self.assertNotIn("not read", text)
        self.assertIn("Every image can be read", text)
        self.assertEqual(self.check_json(0, pacs)["unread"], {})
        for name in ("photo/dog/a.gif", "photo/dog/b.GIF", "sketch/horse/c.bmp"):
            (pacs / name).write_bytes(b"")
        result = self.run_ok("data", "check", pacs)
        said = next(line for line in result.stdout.splitlines() if "not read" in line).removesuffix(".")
        self.assertTrue(said.startswith(f"3 files of '{pacs}' are not read: 2 .gif, 1 .bmp ("), said)
        self.assertIn(f"\n{said}.\n\nEvery other image can be read, and none occurs in more than one domain or split.\n", result.stdout)
        self.assertEqual(result.stderr, "")
        self.assertEqual(self.check_json(0, pacs)["unread"], {".gif": 2, ".bmp": 1})
        other = self.run_ok("data", "split", pacs, "--train", "photo", "-o", self.folder / "lists")
        self.assertIn(f"tpgm data split: {said}\n", other.stderr)

    def test_a_pipe_in_a_list(self):
        shutil.copy(self.small / "pacs" / "photo" / "dog" / "pic_001.jpg", self.folder / "a.jpg")
        os.mkfifo(self.folder / "x.webp")
        (self.folder / "photos.txt").write_text("a.jpg 0\nx.webp 0\ngone.gif 0\n")
        report = json.loads(test_cli.tpgm("data", "check", "--json", self.folder).stdout)
        self.assertEqual(report["unread"], {})
        self.assertEqual(sorted(Path(bad["file"]).name for bad in report["unreadable"]), ["gone.gif", "x.webp"])

    def test_one_part(self):
        text = self.run_ok("data", "check", self.small / "pacs" / "photo").stdout
        self.assertIn("photo: 7 classes, 1 part, 28 images\n", text)

    def test_twins_in_one_part_are_a_note(self):
        pacs = self.copy("pacs")
        shutil.copy(pacs / "sketch" / "dog" / "pic_001.jpg", pacs / "sketch" / "dog" / "again.jpg")
        self.assertIn("a note, not an error", self.run_ok("data", "check", pacs).stdout)

    def test_missing_files_of_a_list(self):
        domainnet = self.copy("domainnet")
        (domainnet / "real" / "ant" / "real_007_000002.jpg").unlink()
        report = self.check_json(1, domainnet)
        self.assertIn("No such file", report["unreadable"][0]["reason"])

    def test_labels_that_count_from_1(self):
        pacs = self.copy("pacs")
        files = sorted((pacs / "photo").rglob("*.jpg"))
        (self.folder / "photo.txt").write_text("".join(f"{file} {1 + i % 3}\n" for i, file in enumerate(files)))
        self.assertEqual(self.check_json(1, self.folder / "photo.txt")["unused_labels"], ["0"])

    def test_refused(self):
        self.assertIn("there is no", self.error(1, "data", "check", self.folder / "nowhere"))
        self.assertIn("no image", self.error(1, "data", "check", self.folder))
        self.assertIn("Did you mean 'photo'?", self.error(1, "data", "check", self.small / "pacs", "--domains", "foto"))
        self.assertIn("none of the 7 classes",
                      self.error(1, "data", "check", self.small / "pacs", "--class-list", self.small / "imagenet" / "val"))
        wrong = self.folder / "wrong.txt"
        wrong.write_text("a.jpg 0\nb.jpg zero\n")
        self.assertIn("line 2", self.error(1, "data", "check", wrong))


class Split(DataCommand):
    def lines(self, name):
        return (self.folder / "lists" / name).read_text().splitlines()

    def test_lists(self):
        self.run_ok("data", "split", self.small / "domainnet", "--train", "real", "-o", self.folder / "lists", "--radius",
                    "0.25", "--selection", "0.25")
        sets = [set(self.lines(f"real_{kind}.txt")) for kind in ("train", "radius", "selection")]
        self.assertEqual([len(each) for each in sets], [12, 6, 6])
        self.assertEqual(len(set.union(*sets)), 24)
        self.assertTrue(all(Path(line.rsplit(" ", 1)[0]).is_file() for line in set.union(*sets)))
        report = self.check_json(0, self.folder / "lists")
        self.assertEqual(report["classes"][0], "aircraft_carrier")
        names = {part["name"] for part in report["parts"]}
        self.assertTrue({"real/train", "real/radius", "real/selection", "real/test", "sketch/test"} <= names, names)

    def test_fraction_and_seed(self):
        small = self.shared / "larger"
        if not small.exists():
            subprocess.run([sys.executable, ROOT / "scripts" / "make_small_datasets", small, "--per-class", "10"], check=True,
                           stdout=subprocess.DEVNULL)
        seen = []
        for seed in ("0", "0", "1"):
            folder = self.folder / f"lists{len(seen)}"
            self.run_ok("data", "split", small / "pacs", "--train", "photo", "--fraction", "0.5", "--seed", seed, "-o", folder)
            seen.append((folder / "photo_train.txt").read_text())
        self.assertEqual(seen[0], seen[1])
        self.assertNotEqual(seen[0], seen[2])
        self.assertIn(len(seen[0].splitlines()), range(19, 24))  # 7 classes of 5, less two tenths and a fifth

    def test_is_that_of_training(self):
        """A run on the lists has the images of a run on the data, test set and all."""
        larger = self.folder / "larger"
        subprocess.run([sys.executable, ROOT / "scripts" / "make_small_datasets", larger, "--per-class", "10"], check=True,
                       stdout=subprocess.DEVNULL)
        pacs = larger / "pacs"
        for train in ("photo", "photo,sketch"):  # before DATA, which is no second domain
            lists, names = self.folder / ("lists of " + train), train.split(",")
            self.run_ok("data", "split", "--train", train, pacs, "-o", lists)
            self.assertEqual({path.stem for path in lists.glob("*_*.txt")} - {"art_painting"},
                             {f"{name}_{kind}" for name in names for kind in ("train", "radius", "selection", "test")})
            runs = []
            for data in (pacs, lists):
                runs.append(self.folder / f"{data.name} {train} run")
                # Without augmentation, whose random numbers go by the place of an image in its source.
                self.run_ok("train", "--model", "resnet:image_size=32,layers=1-1,width=8,block=basic,stem=small", "--data-dir",
                            data, "--train", train, "--test", "cartoon", "--method", "tpgm", "--epochs", "1", "-b", "16", "--lr",
                            "0.01", "--no-aug", "--workers", "1", "--device", "cpu", "-o", runs[-1])
            one, other = ((run / "best.safetensors") for run in runs)
            for name in ("backbone.stem.conv1.weight", "head.weight"):
                self.assertEqual(tensor(one, name), tensor(other, name))
            one, other = (json.loads((run / "result.json").read_text()) for run in runs)
            self.assertEqual(one["tests"], other["tests"])
            self.assertEqual([test["name"] for test in one["tests"]], [*names, "cartoon"])
            self.assertEqual([test["pictures"] for test in one["tests"]], [14] * len(names) + [70])
            self.assertEqual([test["id"] for test in one["tests"]], [True] * len(names) + [False])

    def test_of_no_test(self):
        self.run_ok("data", "split", self.small / "pacs", "--train", "photo", "--test", "0", "-o", self.folder / "lists")
        self.assertFalse((self.folder / "lists" / "photo_test.txt").exists())
        self.assertIn("'domainnet' has 'real/test', which is kept; none is held out for test",
                      self.run_ok("data", "split", self.small / "domainnet", "--train", "real", "-o", self.folder / "more")
                      .stderr.replace(str(self.small) + "/", ""))

    def test_domains(self):
        command = ("data", "split", self.small / "pacs", "-o", self.folder / "x", "--train")
        self.assertIn("Did you mean 'photo'?", self.error(1, *command, "sketch,foto"))
        self.assertIn("are of one domain", self.error(1, *command, "sketch,sketch"))

    def test_absolute_and_relative_paths_are_the_same_files(self):
        domainnet = self.copy("domainnet")
        lines = (domainnet / "real_train.txt").read_text().splitlines()[:2]
        (domainnet / "real_val.txt").write_text("".join(f"{domainnet}/{line}\n" for line in lines))
        self.assertIn("real/val", self.error(1, "data", "split", domainnet, "--train", "real/train", "-o", self.folder / "x"))

    def test_lists_that_would_take_each_others_place(self):
        message = self.error(1, "data", "split", self.small / "domainnet", "--train", "real/test", "--radius", "0",
                             "--selection", "0", "--test", "0", "-o", self.folder / "x")
        self.assertIn("two parts would both be 'real_train.txt'", message)
        self.assertEqual(os.listdir(self.folder), [])

    def test_nothing_left_for_a_set(self):
        message = self.error(1, "data", "split", self.small / "pacs", "--train", "photo", "--fraction", "0.01", "-o",
                             self.folder / "x")
        self.assertIn("nothing is left for --radius 0.1", message)

    def test_overlaps_are_refused(self):
        domainnet = self.copy("domainnet")
        with open(domainnet / "real_train.txt", "a") as train:
            train.write((domainnet / "real_test.txt").read_text().splitlines()[0] + "\n")
        message = self.error(1, "data", "split", domainnet, "--train", "real", "-o", self.folder / "lists")
        self.assertIn("real/test", message)
        self.assertFalse((self.folder / "lists").exists())

    def test_equal_contents_are_refused_on_request(self):
        domainnet = self.copy("domainnet")
        line = (domainnet / "real_test.txt").read_text().splitlines()[0]
        shutil.copy(domainnet / line.rsplit(" ", 1)[0], domainnet / "real" / "ant" / "again.jpg")
        with open(domainnet / "real_train.txt", "a") as train:
            train.write("real/ant/again.jpg 6\n")
        self.run_ok("data", "split", domainnet, "--train", "real", "-o", self.folder / "lists")
        message = self.error(1, "data", "split", domainnet, "--train", "real", "--content", "-o", self.folder / "other")
        self.assertIn("the same image", message)

    def test_usage(self):
        self.assertIn("name the one to split", self.error(2, "data", "split", self.small / "pacs", "-o", self.folder / "x"))
        self.assertIn("must be above 0", self.error(1, "data", "split", self.small / "pacs", "--train", "photo", "--fraction",
                                                    "0", "-o", self.folder / "x"))


class Shards(DataCommand):
    def test_round_trip(self):
        shards = self.folder / "shards"
        self.run_ok("data", "shards", self.small / "domainnet", "--domains", "real/train,sketch/test", "-o", shards,
                    "--shard-size", "10kB")
        self.assertIn("real_train-000001.tar", os.listdir(shards))
        with tarfile.open(shards / "real_train-000000.tar") as tar:
            names = tar.getnames()
            self.assertEqual(names[:2], ["00000000_real_001_000001.jpg", "00000000_real_001_000001.cls"])
            self.assertEqual(tar.extractfile(names[1]).read(), b"0")
            image = tar.extractfile(names[0]).read()
        self.assertEqual(image, (self.small / "domainnet/real/aircraft_carrier/real_001_000001.jpg").read_bytes())
        before, after = (self.check_json(0, where, "--domains", "real/train,sketch/test")
                         for where in (self.small / "domainnet", shards))
        self.assertEqual(before["parts"], after["parts"])
        self.assertEqual(before["classes"], after["classes"])
        report = self.check_json(0, str(shards / "real_train-{000000..000001}.tar"))
        self.assertEqual(report["parts"][0]["name"], "real/train")

    def test_names_in_other_scripts_and_names_that_collide(self):
        data = self.folder / "data"
        for part in ("写真", "素描"):
            shutil.copytree(self.small / "pacs" / "photo" / "dog", data / part / "dog")
        self.run_ok("data", "shards", data, "-o", self.folder / "shards")
        self.assertEqual({path.name for path in (self.folder / "shards").glob("*.tar")},
                         {"写真-000000.tar", "素描-000000.tar"})
        for part in ("a b", "a_b"):
            shutil.copytree(self.small / "pacs" / "photo" / "dog", data / part / "dog")
        self.assertIn("two parts would both be 'a_b-*.tar'", self.error(1, "data", "shards", data, "-o", self.folder / "more"))

    def test_nothing_is_left_behind(self):
        pacs = self.copy("pacs")
        (pacs / "sketch" / "person" / "pic_004.jpg").write_bytes(b"")
        self.assertIn("pic_004.jpg", self.error(1, "data", "shards", pacs, "-o", self.folder / "shards"))
        self.assertEqual(os.listdir(self.folder), ["pacs"])
        self.assertIn("not an empty folder", self.error(1, "data", "shards", pacs, "-o", pacs))


class Predict(DataCommand):
    def predict(self, *arguments):
        self.output = self.folder / "out.safetensors"
        return self.run_ok("predict", *arguments, "--device", "cpu", "-o", self.output)

    def rows(self):
        with open(self.folder / "out.csv", newline="") as file:
            return list(csv.DictReader(file))

    def test_features_are_those_of_transformers(self):
        """Through torchvision and Pillow: see make_predict_goldens.py. Images may differ by a gray level."""
        self.predict("--checkpoint", CLIP, "--data-dir", self.small / "pacs", "--features", "-b", "10")
        shape, ours = tensor(self.output, "features")
        _, theirs = tensor(ROOT / "tests" / "data" / "goldens" / "predict.safetensors", "features")
        self.assertEqual(shape, [112, 24])
        self.assertLess(max(abs(a - b) for a, b in zip(ours, theirs, strict=True)), 5e-3)

    def test_logits_labels_and_csv(self):
        text = self.predict("--checkpoint", RESNET, "--data-dir", self.small / "pacs", "--domains", "photo,sketch").stdout
        shape, logits = tensor(self.output, "logits")
        self.assertEqual(shape, [56, 7])
        rows = self.rows()
        self.assertEqual(rows[0]["part"], "photo")
        self.assertEqual(rows[0]["file"], "photo/dog/pic_001.jpg")
        names = ["dog", "elephant", "giraffe", "guitar", "horse", "house", "person"]
        for i, row in enumerate(rows):
            best = max(range(7), key=lambda k: logits[7 * i + k])
            self.assertEqual(row["prediction"], names[best])
        right = sum(row["label"] == row["prediction"] for row in rows[:28])
        self.assertIn(f"photo: 28 images, 7 logits, accuracy {100 * right / 28:.2f} % over all 7 classes", text)

    def test_the_same_with_any_workers_shards_and_lists(self):
        self.run_ok("data", "shards", self.small / "pacs", "-o", self.folder / "shards")
        seen = []
        for where, more in ((self.small / "pacs", ("-j", "1")), (self.small / "pacs", ("-j", "5", "-b", "3")),
                            (self.folder / "shards", ())):
            self.predict("--checkpoint", RESNET, "--data-dir", where, *more)
            seen.append(tensor(self.output, "logits")[1])
        for other in seen[1:]:
            self.assertLess(max(abs(a - b) for a, b in zip(seen[0], other, strict=True)), 1e-4)

    def test_subset_of_the_classes(self):
        names = self.folder / "names.txt"
        names.write_text("\n".join(sorted(os.listdir(self.small / "imagenet" / "val"))))
        head = self.folder / "head.safetensors"
        self.run_ok("zeroshot", "--checkpoint", CLIP, "--classnames", names, "-o", head)
        common = ("--checkpoint", CLIP, "--head", head, "--data-dir", self.small / "imagenet-r")
        self.assertIn("over all 8 classes", self.predict(*common).stdout)
        self.assertIn("over the 4 that occur of 8 classes", self.predict(*common, "--classes", "subset").stdout)
        folders = set(os.listdir(self.small / "imagenet-r")) - {"README.txt"}
        self.assertTrue({row["prediction"] for row in self.rows()} <= folders)
        self.assertIn("--class-list", self.error(1, "predict", "--checkpoint", RESNET, "--data-dir", self.small / "imagenet-r",
                                                 "-o", self.folder / "x.safetensors"))

    def test_the_classes_of_a_head_go_by_name(self):
        names = self.folder / "names.txt"
        head = self.folder / "head.safetensors"
        folders = sorted(os.listdir(self.small / "pacs" / "photo"))
        seen = []
        for order in (folders, folders[::-1]):
            names.write_text("\n".join(order))
            self.run_ok("zeroshot", "--checkpoint", CLIP, "--classnames", names, "-o", head)
            self.predict("--checkpoint", CLIP, "--head", head, "--data-dir", self.small / "pacs")
            seen.append([row["prediction"] for row in self.rows()])
        self.assertEqual(*seen)
        names.write_text("\n".join(["dogs"] + folders[1:]))
        self.run_ok("zeroshot", "--checkpoint", CLIP, "--classnames", names, "-o", head)
        self.assertIn("no class 'dog', and has others of the data; the nearest is 'dogs'",
                      self.error(1, "predict", "--checkpoint", CLIP, "--head", head, "--data-dir", self.small / "pacs", "-o",
                                 self.folder / "x.safetensors"))

    def test_images_without_labels(self):
        flat = self.folder / "flat"
        shutil.copytree(self.small / "pacs" / "photo" / "dog", flat)
        text = self.predict("--checkpoint", RESNET, "--data-dir", flat).stdout
        self.assertNotIn("accuracy", text)
        self.assertEqual(self.rows()[0]["label"], "")

    def test_bad_images(self):
        pacs = self.copy("pacs")
        (pacs / "photo" / "dog" / "pic_003.jpg").write_bytes(b"")
        common = ("predict", "--checkpoint", RESNET, "--data-dir", pacs, "--domains", "photo", "-o",
                  self.folder / "out.safetensors")
        message = self.error(1, *common)
        self.assertIn("pic_003.jpg': it is empty", message)
        self.assertIn("--on-bad-image skip", message)
        self.assertFalse((self.folder / "out.safetensors").exists() or (self.folder / "out.csv").exists())
        result = self.run_ok(*common, "--on-bad-image", "skip")
        self.assertIn("skipped", result.stderr)
        self.assertIn("1 image skipped", result.stdout)
        self.assertEqual(len(self.rows()), 27)
        self.assertIn("more than the 100 that are allowed", self.error(1, *common, "--max-pixels", "100"))

    def test_a_script(self):
        script = GOLDENS / "torchvision-resnet-basic" / "script.pt"
        image_size = json.loads((GOLDENS / "torchvision-resnet-basic" / "case.json").read_text()).get("image_size", 32)
        self.predict("--model", f"script:{script}:image_size={image_size}", "--features", "--data-dir", self.small / "pacs",
                     "--domains", "photo")
        self.assertEqual(tensor(self.output, "features")[0][0], 28)

    def test_usage(self):
        common = ("predict", "--checkpoint", RESNET, "--data-dir", self.small / "pacs", "-o", self.folder / "x.csv")
        self.assertIn("the same file", self.error(2, *common))
        self.assertIn("--features has none", self.error(2, *common, "--csv", "y", "--features", "--classes", "subset"))
        self.assertIn("--mean: 2 numbers; expected 1 or 3", self.error(2, *common, "--csv", "y", "--mean", "0.5,0.5"))
        self.assertIn("--std: 0: must be above 0", self.error(2, *common, "--csv", self.folder / "y", "--std", "0"))
        self.assertIn("--checkpoint is required", self.error(2, "predict", "--data-dir", self.small, "-o", self.folder / "x"))
        self.assertIn("error|skip", self.error(2, "predict", "--checkpoint", RESNET, "--data-dir", self.small, "-o",
                                                  self.folder / "x", "--on-bad-image", "ignore"))


class Glyphs(DataCommand):
    def test_the_committed_set(self):
        report = self.check_json(0, ROOT / "assets" / "glyphs.tar")
        self.assertEqual(len(report["classes"]), 62)
        self.assertEqual({part["name"] for part in report["parts"]},
                         {"sans/train", "sans/radius", "sans/selection"} |
                         {f"{domain}/test" for domain in ("sans", "serif", "mono", "hand", "deco")})
        self.assertTrue(all(min(part["per_class"]) > 0 for part in report["parts"]))
        self.assertLessEqual((ROOT / "assets" / "glyphs.tar").stat().st_size, 12_000_000)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    test_cli.COMMAND = str(Path(sys.argv.pop(1)).resolve())
    unittest.main()
