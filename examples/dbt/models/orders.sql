{{ config(
    materialized="incremental", incremental_strategy="merge", unique_key="id", tblproperties={"key": "id"},
    on_schema_change="append_new_columns"
) }}
select id, country, status, amount, updated_at
from {{ source("raw", "orders") }}
{% if is_incremental() %}
where updated_at > (select max(updated_at) from {{ this }})
{% endif %}
