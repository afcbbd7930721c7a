select c.name as country, count(*) as orders, sum(o.amount) as amount
from {{ ref("orders") }} o join {{ ref("countries") }} c on o.country = c.code
group by c.name
