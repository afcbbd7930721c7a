{#- dbt-spark offers merges, snapshots and CREATE OR REPLACE TABLE only to formats that it knows by name. A lake has all of
    them, so a project says file_format: iceberg, and these macros translate. Copy this file into your project. -#}

{#- No USING: the catalog has one format. -#}
{% macro spark__file_format_clause() %}{% endmacro %}

{#- A table of a lake counts as one of the format that the project names. -#}
{% macro spark__list_relations_without_caching(relation) %}
  {% set found = [] %}
  {% for row in run_query("show table extended in " ~ relation.schema ~ " like '*'") %}
    {% do found.append([row[0], row[1], row[2], row[3] | replace("Provider: conroi", "Provider: iceberg")]) %}
  {% endfor %}
  {% do return(found) %}
{% endmacro %}

{#- A snapshot joins through a view without a schema. A lake has no views, Spark's session has temporary ones. -#}
{% macro spark__create_view_as(relation, sql) %}
  create or replace {{ "temporary" if not relation.schema }} view {{ relation }} as {{ sql }}
{% endmacro %}

{#- Everything between on-run-start and on-run-end is one transaction of the lake. A failure rolls all of it back. -#}
{% macro conroi_begin() %}
  {% if execute and flags.WHICH in ("build", "run", "seed", "snapshot") %}
    {% do run_query("call lake.system.begin('" ~ invocation_id ~ "', 'dbt " ~ flags.WHICH ~ "')") %}
    {% do run_query("set spark.conroi.transaction.lake = " ~ invocation_id) %}
  {% endif %}
{% endmacro %}

{% macro conroi_end(results) %}
  {% if execute and flags.WHICH in ("build", "run", "seed", "snapshot") %}
    {% set failed = results | map(attribute="status") | select("in", ["error", "fail", "partial success"]) | list %}
    {% do run_query("reset spark.conroi.transaction.lake") %}
    {% do run_query("call lake.system." ~ ("rollback" if failed else "commit") ~ "('" ~ invocation_id ~ "')") %}
  {% endif %}
{% endmacro %}
