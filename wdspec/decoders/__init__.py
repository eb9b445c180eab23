"""What is known of each decoder: the words that a spec may use, and which functions are behind them.

In: nothing; this floor lies below `spec`. Out: `table.ROWS`, one row a decoder, of which are made

- the vocabulary that `spec` checks (`table.BY_NAME`, `IMAGE_FIELDS`, …);
- the reader and the writer of each field, which `wdspec.fields` looks up;
- the hints of what to install (`libraries`), and the tables of docs/decoders.md.

A row is data: it names its functions as ``package.module:function``, which are imported when a process first decodes or
encodes with them. So a spec is validated without numpy, Pillow or torch (import-linter checks it), the functions may
use these libraries like any other code, and no sample pays for it: the function of a field is looked up once for all
samples with the same names. Rows that hold the functions themselves would need imports inside of these functions: an
import statement for every npy field, in a file of which nobody could see any more that validating does not run it.

**To add a decoder**, add a row to `table.py`. Its functions belong to `wdspec/fields/codecs/`: one file for the reading
and the writing of one kind of value. Read `row.py` first.
"""
