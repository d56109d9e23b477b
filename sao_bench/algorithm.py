"""placeholder"""


class Algorithm:
    name = ""
