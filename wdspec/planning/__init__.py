"""Who reads what, when: pure arithmetic. No I/O and no torch; plans can be printed and compared.

In: a spec, the number of shards of each source, a topology. Out: a `Plan`. Read `plan` first. `topology` has slots,
ranks and seats; `shares` and `draws` choose the source of each sample; `order` gives shards to slots and shuffles
samples; `passes` is for `epoch: pass`. `keys` has the random numbers, and `digest` describes all that the order
depends on.
"""
