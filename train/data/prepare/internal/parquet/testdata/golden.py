"""Writes files of the same texts by PyArrow, in the encodings and compressions that it knows.

    python3 golden.py          (in this directory)
"""

import pyarrow as pa
import pyarrow.parquet as pq

texts = [None if i % 7 == 3 else "" if i % 11 == 5 else f"row {i} " + "é" * (i % 19) for i in range(60)]
constant = ["the same text each time"] * 400


def save(name, list, nullable=True, **options):
    field = pa.field("text", pa.string(), nullable=nullable)
    table = pa.table(
        [pa.array(range(len(list))), pa.array([{"a": i, "b": "x"} for i in range(len(list))]), pa.array(list, pa.string())],
        schema=pa.schema([pa.field("id", pa.int64()), pa.field("nested", pa.struct([("a", pa.int64()), ("b", pa.string())])), field]),
    )
    pq.write_table(table, name + ".parquet", row_group_size=45, **options)


present = [t for t in texts if t is not None]
plain = dict(use_dictionary=False)
for codec in ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]:
    save(codec, texts, compression=codec, **plain)
save("dictionary", texts, compression="none")
save("version2", texts, compression="snappy", data_page_version="2.0")
save("pages", texts, compression="zstd", data_page_size=64, write_batch_size=8, data_page_version="2.0", write_page_checksum=True, **plain)
save("checksums", texts, compression="snappy", write_page_checksum=True)
save("delta_length", texts, compression="none", use_dictionary=False, column_encoding={"text": "DELTA_LENGTH_BYTE_ARRAY"})
save("delta", texts, compression="gzip", use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY"})
save("required", present, nullable=False, compression="none", use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY"})
save("constant", constant, compression="zstd")
