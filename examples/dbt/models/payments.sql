{{ config(materialized="incremental", incremental_strategy="append") }}
select id as order_id, amount, updated_at as paid_at
from {{ ref("orders") }}
where status = 'paid'
{% if is_incremental() %}
and updated_at > (select coalesce(max(paid_at), timestamp '1970-01-01') from {{ this }})
{% endif %}
