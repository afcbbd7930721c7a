"""Lance file formats: encoding and decoding of table metadata. Pure: no storage, no clock, no randomness."""

from __future__ import annotations

from conroi.format.manifest import Manifest
from conroi.format.manifest_file import ManifestFile, decode_manifest_file, encode_manifest_file
from conroi.format.naming import ManifestNaming
from conroi.format.schema import fields_from_schema, schema_from_fields
from conroi.format.transaction import Transaction, decode_transaction, encode_transaction

__all__ = [
    "Manifest",
    "ManifestFile",
    "ManifestNaming",
    "Transaction",
    "decode_manifest_file",
    "decode_transaction",
    "encode_manifest_file",
    "encode_transaction",
    "fields_from_schema",
    "schema_from_fields",
]
