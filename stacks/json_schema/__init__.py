"""Write the JSON Schemas of gpuform's files and plans, and the types of fields in words."""
