"""scripts/check_includes on small trees: right directions pass, wrong ones fail and are named."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_includes"


class CheckIncludes(unittest.TestCase):
    def check(self, files):
        """Runs the script on a tree of {path: text}; returns (exit status, everything it said)."""
        with tempfile.TemporaryDirectory() as root:
            Path(root, "tpgm").mkdir()
            for path, text in files.items():
                file = Path(root, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            result = subprocess.run([sys.executable, str(SCRIPT), root], capture_output=True, text=True)
            return result.returncode, result.stdout + result.stderr

    def passes(self, files):
        status, said = self.check(files)
        self.assertEqual(status, 0, said)

    def fails(self, files, *words):
        status, said = self.check(files)
        self.assertEqual(status, 1, said)
        for word in words:
            self.assertIn(word, said)

    def test_every_allowed_direction(self):
        allowed = {
            "io": ["base"],
            "core": ["base", "io", "kernels"],
            "checkpoints": ["base", "core", "io", "kernels"],
            "methods": ["base", "core", "io"],
            "nn": ["base", "core", "kernels"],
            "models": ["base", "core", "io", "nn"],
            "text": ["base", "io", "nn", "models"],
            "weights": ["base", "io", "checkpoints", "nn", "models", "text"],
            "data": ["base", "io"],
            "train": ["base", "core", "io", "methods", "nn", "models", "text", "weights", "data"],
            "report": ["base"],
            "study": ["base", "core", "io", "checkpoints", "methods", "nn", "models", "text", "weights", "data", "train", "report"],
            "report/sections": ["base", "io", "checkpoints", "models", "weights", "data", "train", "report", "study"],
        }
        rooms = ["base", "kernels"] + list(allowed)
        right, wrong = {}, {}
        for room in rooms:
            for other in rooms:
                may = other == room or other in allowed.get(room, [])
                (right if may else wrong)[f"tpgm/{room}/uses_{other.replace('/', '-')}.cpp"] = f'#include "tpgm/{other}/b.h"\n'
        self.passes(right)
        self.fails(wrong, f"{len(wrong)} wrong", *(f"{file}:1: {file[5:file.rindex('/')]} may not include" for file in wrong))

    def test_a_room_within_a_room(self):
        text = '#include "tpgm/study/a.h"\n'
        self.passes({"tpgm/report/sections/a.cpp": text + '#include "tpgm/report/a.h"\n'})
        self.fails({"tpgm/report/a.cpp": text}, "report may not include study")
        self.fails({"tpgm/report/a.cpp": '#include "tpgm/report/sections/a.h"\n'}, "report may not include report/sections")
        self.fails({"tpgm/study/a.cpp": '#include "tpgm/report/sections/a.h"\n'}, "study may not include report/sections")
        # Other folders belong to the room that they lie in.
        self.passes({"tpgm/report/plots/a.cpp": '#include "tpgm/report/a.h"\n#include "tpgm/base/b.h"\n'})
        self.fails({"tpgm/report/plots/a.cpp": text}, "report may not include study")

    def test_names_line_and_what_is_allowed(self):
        text = "// A file.\n#pragma once\n\n#  include <tpgm/methods/tpgm.h>\n"
        self.fails({"tpgm/core/a.h": text}, "tpgm/core/a.h:4: core may not include methods", "may include: base, io, kernels")
        self.fails({"tpgm/io/a.h": '#include "tpgm/core/b.h"\n'}, "may include: base")

    def test_folders_outside_may_include_every_room(self):
        text = "#include <tpgm/tpgm.h>\n#include <tpgm/kernels/projection.h>\n#include <tpgm/train/trainer.h>\n"
        for folder in ["tools", "python", "examples", "tests/core", "benchmarks"]:
            self.passes({f"{folder}/a.cpp": text})

    def test_rooms_may_not_include_what_is_outside(self):
        self.fails({"tpgm/io/a.cpp": '#include "tools/command.h"\n', "tools/command.h": ""}, "io may not include tools")
        self.fails({"tpgm/io/a.cpp": '#include "../../tests/b.h"\n'}, "io may not include tests")

    def test_umbrella(self):
        text = '#include "tpgm/core/a.h"\n#include "tpgm/methods/b.h"\n#include "tpgm/io/c.h"\n'
        self.passes({"tpgm/tpgm.h": text})
        self.fails({"tpgm/tpgm.h": '#include "tpgm/kernels/projection.h"\n'}, "tpgm.h may not include kernels")
        self.fails({"tpgm/io/a.cpp": "#include <tpgm/tpgm.h>\n"}, "io may not include tpgm.h")

    def test_relative_includes(self):
        self.passes({"tpgm/core/a.cpp": '#include "a.h"\n#include "./b.h"\n', "tpgm/core/a.h": "", "tpgm/core/b.h": ""})
        self.passes({"tpgm/core/a.cpp": '#include "../kernels/projection.h"\n'})
        self.fails({"tpgm/kernels/a.cpp": '#include "../core/a.h"\n'}, "kernels may not include core")
        self.fails({"tpgm/core/deep/a.cpp": '#include "../../data/a.h"\n'}, "core may not include data")

    def test_comments_are_not_includes(self):
        text = (
            '// #include "tpgm/methods/tpgm.h"\n'
            '/* say:\n#include "tpgm/methods/tpgm.h"\n*/\n'
            'const char* glob = "head/*";\n'
            '#include "tpgm/data/a.h"\n'
            'const char* other = "*/head";\n'
        )
        status, said = self.check({"tpgm/core/a.cpp": text})
        self.assertEqual(status, 1)
        self.assertEqual(said.count("may not include"), 1, said)
        self.assertIn("tpgm/core/a.cpp:6: core may not include data", said)

    def test_no_torch_in_kernels(self):
        for header in ["torch/types.h", "ATen/ATen.h", "c10/cuda/CUDAStream.h", "caffe2/core/macros.h"]:
            self.fails({"tpgm/kernels/projection.cu": f"#include <{header}>\n"}, "tpgm/kernels/projection.cu:1:", header)
            self.passes({"tpgm/core/a.cpp": f"#include <{header}>\n"})
        self.passes({"tpgm/kernels/projection.cu": "#include <cuda_runtime.h>\n#include <vector>\n"})

    def test_no_torch_torch_in_headers(self):
        text = "#include <torch/torch.h>\n"
        self.fails({"tpgm/core/a.h": text}, "tpgm/core/a.h:1:", "narrow headers")
        self.fails({"tpgm/tpgm.h": text}, "narrow headers")
        self.passes({"tpgm/core/a.cpp": text, "tests/a.h": text, "examples/1.cpp": text})

    def test_unknown_room(self):
        hint = "add it to ROOMS in scripts/check_includes"
        self.fails({"tpgm/attic/a.cpp": "", "tpgm/attic/b.cpp": ""}, "tpgm/attic is an unknown room", hint, "1 wrong")
        self.fails({"tools/a.cpp": '#include "tpgm/attic/a.h"\n'}, "tools/a.cpp:1:", "'attic'", hint)

    def test_foreign_and_generated_files_are_left_alone(self):
        self.passes({"tpgm/io/a.cpp": '#include "nlohmann/json.hpp"\n#include <fmt/format.h>\n#include HEADER\n'})
        self.passes({"examples/cmake_project/build/a.cpp": '#include "tpgm/attic/a.h"\n'})

    def test_no_tree(self):
        with tempfile.TemporaryDirectory() as root:
            result = subprocess.run([sys.executable, str(SCRIPT), root], capture_output=True, text=True)
            self.assertEqual(result.returncode, 2)
            self.assertIn("no folder tpgm/", result.stderr)


if __name__ == "__main__":
    unittest.main()
