"""The AIOS clusters registry and its Parser, which makes clusters. Neither asks for a key.

`routes` speaks HTTP, `records` keeps the documents, `schema` checks them as Mongoose does,
`filtering` and `updating` are the part of MongoDB that people use, `settings` what can be set.
"""
