"""The verdicts of an audit, over tables of numbers: no topic, no checkpoint, no clock.

choice.py     which right records one left record may have been joined with, however the run went (pure)
compare.py    every verdict, one question after the other (pure)
contents.py   what rows say, compared by digests (pure)
corrected.py  what the rows would be if every record had been there in time (pure)
database.py   the tables in DuckDB, and the faults that are gathered there (pure)
joined.py     the join by brute force, and the rows beside it (pure)
scope.py      what the join says, and what of it is audited (pure)
sides.py      the side topics (pure)
verified.py   which records are verified (pure)

The modules hand tables to each other, in the order below. Tables that only the function reads which makes them are not
listed.

    table                    has a row for each                                  made by      read by
    lefts, rights            record that was read                                `..scan`     verified, joined, contents
    rows, copies             row of the output; copy in a side topic             `..scan`     every module
    left_spans, right_spans  partition: which offsets are verified               verified     joined, sides
    dead_then                record that a clock or the registry refused then    verified     verified
    verified, verified_right record that is verified                             verified     every module
    taking                   right record that takes part; `sure`: surely there  verified*    joined, corrected
    doubtful                 of these, not sure                                  verified     joined
    best, pairs              left record: its right one; pair, by policy `all`   joined       joined, corrected
    said                     row: its reason for no right record                 contents     joined, corrected
    forgotten                left record whose right one is not there any more   contents*    joined
    refused                  left record whose row could not be written          joined       compare, corrected
    per_left                 left record that has rows: how many, which right    joined       joined, sides
    cases                    left record to be compared with its rows            joined       joined
    compared                 of these: is its result fine, and checked strictly  joined       compare, corrected
    faults                   fault                                               every module compare

*) `corrected` makes `taking` anew, with every record as sure; `joined` adds to `forgotten`.
"""
