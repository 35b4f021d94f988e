#!/usr/bin/env python3
"""ptx_lint.py is silent about a good kernel, and names each single thing that is wrong with a bad one."""
import sys

from ptx_lint import complaints

GOOD = """
.version 9.0
.target sm_90
.visible .entry folds(
  .param .u64 folds_param_0
)
.maxntid 512
{
  .reg .b64 %rd<3>;
  ld.param.b64 %rd1, [folds_param_0];
  @%p1 bra $L__BB0_2;
  { // begin inline asm
  ld.cg.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
  }
$L__BB0_2:
  ld.acquire.sys.b64 %rd2, [%rd1];
  ret;
}
"""
EMPTY = "{\n  .reg .b64 %rd<3>;\n$L:\n  ret;\n}"
PLANTED = {
    "a kernel without instructions": GOOD[: GOOD.index("{\n  .reg")] + EMPTY,
    "uses local memory": GOOD.replace("ret;", "st.local.b64 [%rd1], %rd2;\n  ret;"),
    "uses local memory ": GOOD.replace(".reg", ".local .align 8 .b8 __local_depot0[8];\n  .reg", 1),
    "reads through the read-only cache": GOOD.replace("ld.cg.v4.u32", "ld.global.nc.v4.u32"),
    "reads through the read-only cache ": GOOD.replace("ld.cg.v4.u32", "@%p1 ld.global.L1::no_allocate.nc.v4.u32"),
    "no st.release.sys": GOOD,
    "no ld.acquire.sys": GOOD.replace("ld.acquire.sys", "ld.acquire.gpu"),
    "there is no kernel": GOOD.replace(".entry", ".func"),
}
EXPECTED = {"no st.release.sys": ["st.release.sys"]}


def main():
    failed = list(complaints(GOOD, ["ld.acquire.sys", "ld.cg.v4"]))
    two = list(complaints(GOOD + PLANTED["a kernel without instructions"].replace("folds", "other"), []))
    if two != ["other: a kernel without instructions"]:
        failed.append(f"of two kernels the wrong one is named: {two}")
    for what, text in PLANTED.items():
        said = list(complaints(text, EXPECTED.get(what, ["ld.acquire.sys"] if "acquire" in what else [])))
        if len(said) != 1 or what.strip() not in said[0]:
            failed.append(f"expected one complaint, `{what.strip()}`, got {said}")
    for line in failed:
        print(line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
